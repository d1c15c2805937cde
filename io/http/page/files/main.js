// The frame of the page: tabs, theme, key, and whether the server answers.

import { $, make } from "./dom.js";
import { askJson, key } from "./api.js";
import { Playground } from "./playground.js";
import { Engine } from "./engine.js";

// -- theme -------------------------------------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];
const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
let theme = THEMES.includes(localStorage.getItem("pagoda.theme")) ? localStorage.getItem("pagoda.theme") : "auto";

function applyTheme() {
  const dark = theme === "dark" || (theme === "auto" && systemIsDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = theme[0].toUpperCase() + theme.slice(1);
  document.dispatchEvent(new Event("theme"));
}

$("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  localStorage.setItem("pagoda.theme", theme);
  applyTheme();
});
systemIsDark.addEventListener("change", applyTheme);
applyTheme();

// -- key ---------------------------------------------------------------------------------------------------------------

const dialog = $("key-dialog");

/** Asks for a key, and says why. */
function askForKey(why) {
  $("key-why").textContent = why;
  $("key-input").value = key.get();
  if (!dialog.open) dialog.showModal();
  $("key-input").select();
}

function useKey(value) {
  key.set(value.trim());
  dialog.close();
  connect();
  engine.restart();
}

$("key").addEventListener("click", () => askForKey("Needed where the server has keys. The engine view takes an admin key."));
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey($("key-input").value);
});
$("key-cancel").addEventListener("click", () => dialog.close());
$("key-forget").addEventListener("click", () => useKey(""));

// -- health ------------------------------------------------------------------------------------------------------------

function setHealth(isOk, words) {
  $("health").className = `health ${isOk ? "ok" : "bad"}`;
  $("health").lastElementChild.textContent = words;
  $("health").title = words;
}

/** The served model; of several a choice, whose engine the live view then shows. */
function showServed(models) {
  const names = [...new Set(models.map(({ root }) => root))];
  const chosen = $("served").querySelector("select")?.value;
  if (names.length < 2) {
    $("served").textContent = models[0]?.id ?? "";
    return;
  }
  const choice = make("select", { title: "The model that the engine view shows" });
  choice.append(...names.map((name) => make("option", { value: name }, name)));
  if (names.includes(chosen)) choice.value = chosen;
  choice.addEventListener("change", () => engine.setModel(choice.value));
  $("served").replaceChildren(choice);
  engine.setModel(choice.value);
}

/** Lists the models, which says whether the server answers and takes the key. */
async function connect() {
  try {
    const { data } = await askJson("v1/models");
    setHealth(true, "connected");
    showServed(data);
    playground.setModels(data);
  } catch (error) {
    setHealth(false, error.needsKey ? "key needed" : "no answer");
    if (error.needsKey) askForKey(key.get() ? `${error.message}.` : "This server asks for an API key.");
  }
}

// -- tabs --------------------------------------------------------------------------------------------------------------

const tabs = ["playground", "engine"];

function select(name, focus) {
  for (const each of tabs) {
    const isChosen = each === name;
    $(`view-${each}`).hidden = !isChosen;
    $(`tab-${each}`).setAttribute("aria-selected", isChosen);
    $(`tab-${each}`).tabIndex = isChosen ? 0 : -1;
  }
  if (focus) $(`tab-${name}`).focus();
  if (location.hash.slice(1) !== name) history.replaceState(null, "", `#${name}`);
  engine.show(name === "engine");
}

for (const name of tabs) {
  $(`tab-${name}`).addEventListener("click", () => select(name));
  $(`tab-${name}`).addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") select(tabs[1 - tabs.indexOf(name)], true);
  });
}

const ui = { askForKey, setHealth };
const playground = new Playground(ui);
const engine = new Engine(ui);
addEventListener("hashchange", () => select(tabs.includes(location.hash.slice(1)) ? location.hash.slice(1) : tabs[0]));
select(tabs.includes(location.hash.slice(1)) ? location.hash.slice(1) : tabs[0]);
connect();
