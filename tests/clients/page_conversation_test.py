#!/usr/bin/env python3
"""Conversations of the page in a Chromium without a window; skipped (77) where there is no Chromium.

usage: page_conversation_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json

import page_case
from page_case import Case, delta

MESSAGES = "[...document.querySelectorAll('.message .text')].map((each) => each.textContent)"
TITLES = "[...document.querySelectorAll('#conversations option')].map((each) => each.textContent)"


class Conversation(Case):
    def begin(self):
        page = self.open()
        self.connected()
        return page

    def ask(self, text, *answer, **options):
        self.script(*(delta(content=each) for each in answer), **options)
        num = len(self.messages())
        self.send(text)
        self.until(f"document.querySelector('#stop').hidden && document.querySelectorAll('.message').length === {num + 2}")

    def messages(self):
        return self.browser.value(MESSAGES)

    def click_in(self, number, name):
        """The button of this name below the message of this number."""
        self.browser.value(f"""[...document.querySelectorAll('.message')].at({number}).querySelectorAll('button')
            .forEach((button) => button.textContent === {json.dumps(name)} && button.click())""")

    def sent(self):
        return [(each["role"], each["content"]) for each in self.browser.value("asked.at(-1).messages")]

    def test_a_reload_keeps_messages_settings_and_what_is_sent(self):
        page = self.begin()
        self.set_field("system", "Be brief.")
        self.set_field("temperature", "0.5")
        self.script(delta(reasoning="Hm."), delta(content="An **answer**."),
                    delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": 1}'}}]))
        self.send("A question")
        self.answer_ends()
        self.reload()
        self.assertEqual(self.messages(), ["A question", "An answer."])
        self.assertEqual(page.text(".message .text strong"), "answer")
        self.assertEqual(page.text(".call pre"), '{\n  "a": 1\n}')
        self.assertRegex(page.text("details.thinking summary"), "^Thought for ")
        self.assertEqual(page.value("document.querySelector('[name=temperature]').value"), "0.5")
        self.ask("More?", "No.")
        body = page.value("asked.at(-1)")
        self.assertEqual(body["temperature"], 0.5)
        self.assertEqual(body["messages"], [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "A question"},
            {"role": "assistant", "content": "An **answer**.", "reasoning": "Hm.",
             "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
            {"role": "user", "content": "More?"}])
        self.assertEqual(page.problems, [])

    def test_the_server_takes_a_conversation_back_after_a_reload(self):
        self.begin()
        self.set_field("max_tokens", "8")
        for n in (1, 2):
            self.send(f"Question {n}")
            self.until(f"document.querySelector('#stop').hidden && document.querySelectorAll('.meta').length === {n}")
            self.reload()
        self.assertEqual(len(self.messages()), 4)
        self.assertEqual(self.browser.problems, [])

    def test_an_answer_that_is_cut_off_by_a_reload_is_kept(self):
        self.begin()
        self.script(*[delta(content=f"{i} ") for i in range(200)], pause_ms=20)
        self.send("Count")
        self.until("(document.querySelector('.message.assistant .text')?.textContent.length ?? 0) > 10")
        self.reload()
        question, answer = self.messages()
        self.assertEqual(question, "Count")
        self.assertTrue(answer.startswith("0 1 2 3"), answer)

    def test_a_question_is_edited_and_asked_again(self):
        page = self.begin()
        self.ask("One", "1")
        self.ask("Two", "2")
        self.script(delta(content="1, again"))
        self.click_in(0, "Edit")
        self.until("document.activeElement.closest('.edit') !== null")
        page.press("Escape", 27)
        self.until("document.querySelector('.edit') === null")
        self.assertEqual(self.messages(), ["One", "1", "Two", "2"])
        self.click_in(0, "Edit")
        page.value("document.activeElement.select()")
        page.type("Uno")
        page.press("Enter", 13)
        self.until(f"JSON.stringify({MESSAGES}) === '[\"Uno\",\"1, again\"]'")
        self.assertEqual(self.sent(), [("user", "Uno")])
        self.reload()
        self.assertEqual(self.messages(), ["Uno", "1, again"])
        self.assertEqual(page.problems, [])

    def test_the_last_answer_is_asked_for_again(self):
        self.begin()
        self.ask("One", "1")
        self.ask("Two", "2")
        self.assertEqual(self.browser.value("document.querySelectorAll('.again-button').length"), 1)
        self.script(delta(content="zwei"))
        self.click_in(-1, "Ask again")
        self.until(f"JSON.stringify({MESSAGES}) === '[\"One\",\"1\",\"Two\",\"zwei\"]'")
        self.assertEqual(self.sent(), [("user", "One"), ("assistant", "1"), ("user", "Two")])

    def test_an_error_leaves_the_conversation_as_it_was(self):
        page = self.begin()
        self.ask("One", "1")
        self.script({"error": {"message": "out of luck"}})
        self.click_in(-1, "Ask again")
        self.until("document.querySelector('.error [role=alert]')?.textContent === 'out of luck'")
        self.assertEqual(self.messages()[:2], ["One", "1"])
        self.send("Two")
        self.until("document.querySelector('#prompt').value === 'Two'")
        self.reload()
        self.assertEqual(self.messages(), ["One", "1"])
        self.assertEqual(page.problems, [])

    def test_stopped_answers_are_kept_and_questions_without_one_are_not_sent(self):
        page = self.begin()
        self.script(*[{"choices": []}] * 500, pause_ms=20)
        self.send("Never answered")
        self.until("!document.querySelector('#stop').hidden")
        page.press("Escape", 27)
        self.until("document.querySelector('#stop').hidden")
        self.ask("Two", "2")
        self.assertEqual(self.sent(), [("user", "Two")])
        self.script(*[delta(content=f"{i} ") for i in range(500)], pause_ms=20)
        self.send("Three")
        self.until("document.querySelector('.message:last-child .text').textContent.length > 10")
        page.click("#stop")
        self.until("document.querySelector('#stop').hidden")
        self.assertIn("stopped", page.text(".message:last-child .meta"))
        self.ask("Four", "4")
        self.assertEqual([role for role, _ in self.sent()], ["user", "assistant", "user", "assistant", "user"])

    def test_several_conversations_are_kept_chosen_and_deleted(self):
        page = self.begin()
        self.ask("First", "1")
        page.click("#new")
        self.until("document.querySelectorAll('.message').length === 0")
        self.reload()
        self.assertEqual(self.messages(), [])
        self.ask("Second\nof two", "2")
        self.assertEqual(self.sent(), [("user", "Second\nof two")])
        self.assertEqual(page.value(TITLES), ["Second of two", "First"])
        page.value("""(() => {
            const choice = document.querySelector('#conversations');
            choice.selectedIndex = 1;
            choice.dispatchEvent(new Event('change'));
        })()""")
        self.until(f"{MESSAGES}[0] === 'First'")
        page.click("#delete")
        self.until("document.activeElement.textContent === 'Cancel'")
        self.keep("delete")
        page.press("Enter", 13)
        self.until("!document.querySelector('#delete-dialog').open")
        self.assertEqual(self.messages(), ["First", "1"])
        page.click("#delete")
        page.click("#delete-one")
        self.until("document.querySelectorAll('.message').length === 0")
        self.assertEqual(page.value(TITLES), ["New conversation", "Second of two"])
        page.click("#delete")
        page.click("#delete-all")
        self.until("document.querySelector('#delete').disabled")
        self.assertEqual(page.value("Object.keys(localStorage).filter((key) => key.startsWith('pagoda.conversation')).length"), 0)
        self.assertEqual(page.problems, [])

    def test_what_is_kept_is_bounded(self):
        page = self.begin()
        kept = page.value("""import('/ui/conversations.js').then((store) => {
            const conversation = (text) => ({...store.begun(), entries: [{kind: 'user', text}]});
            const keys = () => Object.keys(localStorage).filter((key) => key.startsWith('pagoda.conversation.'));
            const total = () => keys().reduce((sum, key) => sum + localStorage.getItem(key).length, 0);
            const results = [];
            for (let i = 0; i < store.MAX_KEPT + 5; i += 1) store.save(conversation(`${i}`));
            results.push(keys().length);
            for (let i = 0; i < 5; i += 1) store.save(conversation('x'.repeat(store.MAX_LENGTH / 3)));
            results.push(total() <= store.MAX_LENGTH);
            results.push(store.listed()[0].title.length);
            results.push(store.save(conversation('x'.repeat(store.MAX_LENGTH))), total() > 0);
            return results;
        })""")
        self.assertEqual(kept, [50, True, 60, False, True])

    def test_a_full_storage_drops_the_oldest(self):
        page = self.begin()
        self.assertEqual(page.value("""import('/ui/conversations.js').then((store) => {
            const conversation = (text) => ({...store.begun(), entries: [{kind: 'user', text}]});
            const [old, young] = [conversation('o'.repeat(300000)), conversation('y'.repeat(300000))];
            store.save(old);
            let size = 1 << 23;
            for (let i = 0; size > 1000; i += 1) {
                try { localStorage.setItem(`other${i}`, 'z'.repeat(size)); } catch { size >>= 1; }
            }
            const isKept = store.save(young);
            return [isKept, store.load(old.id), store.load(young.id).entries[0].text.length];
        })"""), [True, None, 300000])

    def test_another_tab_is_not_written_over(self):
        self.begin()
        self.assertEqual(self.browser.value("""import('/ui/conversations.js').then((store) => {
            const mine = {...store.begun(), entries: [{kind: 'user', text: 'mine'}]};
            store.save(mine);
            const theirs = store.load(mine.id);
            theirs.entries.push({kind: 'assistant', text: 'theirs'});
            theirs.changed = mine.changed;
            localStorage.setItem(`pagoda.conversation.${mine.id}`, JSON.stringify({...theirs, changed: mine.changed + 1}));
            const before = mine.id;
            store.save(mine);
            return [mine.id === before, store.load(before).entries.length, store.load(mine.id).entries.length];
        })"""), [False, 2, 1])

    def test_a_storage_that_holds_nonsense_is_passed_over(self):
        page = self.begin()
        for nonsense in ("{", "null", "[]", '{"entries": 1}', '{"entries": [null, 1, {"kind": "system", "text": "x"}]}',
                         '{"entries": [{"kind": "assistant", "text": {"a": 1}}]}', '{"entries": [{"kind": "user", "text": "kept"}, '
                         '{"kind": "assistant", "text": "", "calls": [{"name": 1}], "facts": [1, "fact"], "reasoning": {}}], "settings": 1}'):
            page.value(f"(localStorage.clear(), localStorage.setItem('pagoda.conversation.x', {json.dumps(nonsense)}))")
            page.value("(localStorage.setItem('pagoda.settings', '3'), sessionStorage.clear())")
            self.reload()
            with self.subTest(nonsense):
                self.assertEqual(self.messages(), ["kept", ""] if "kept" in nonsense else [])
                self.assertEqual(page.problems, [])

    def test_where_nothing_can_be_kept_the_page_works(self):
        page = self.begin()
        page.call("Page.addScriptToEvaluateOnNewDocument", source="""
            const refuse = () => { throw new DOMException('refused', 'QuotaExceededError'); };
            Storage.prototype.setItem = refuse;""")
        self.reload()
        self.script(delta(content="1"))
        self.send("One")
        self.until("document.querySelector('.unkept [role=alert]') !== null")
        self.assertEqual(self.messages()[:2], ["One", "1"])


if __name__ == "__main__":
    page_case.main()
