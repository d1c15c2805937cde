#!/usr/bin/env python3
"""Answers as Markdown, in a Chromium without a window; skipped (77) where there is no Chromium.

usage: page_markdown_test.py PAGODA MODEL_DIR [unittest arguments]
"""
import json

import page_case
from page_case import MARKUP, Case, delta

# Renders a text, and returns its elements without the heads of code blocks and most attributes.
OUTLINE = r"""async (text) => {
    const {MarkdownView} = await import('/ui/markdown.js');
    const root = document.createElement('div');
    const view = new MarkdownView(root);
    view.append(text);
    view.render();
    root.querySelectorAll('.code-head').forEach((head) => head.remove());
    for (const element of root.querySelectorAll('*')) {
        for (const {name} of [...element.attributes]) if (!['href', 'start', 'checked'].includes(name)) element.removeAttribute(name);
        if (element.localName === 'div') element.replaceWith(...element.childNodes);
    }
    return root.innerHTML;
}"""

TOUR = r"""# Title #

Text with **bold**, *it*, ***both***, ~~no~~, `a*b` and [a link](https://example.org/a_(b) "t").
Second line: a_b_c, 2 * 3 * 4, <https://example.org>, https://example.org/x).

Setext
---
```python
def f(a):
	return "**" # <b>
```
1. one
   ```sh
   ls
   ```

   more
2. two
   - a
     - b
   - [x] done

> quote
> > inner
lazy

| a | b |
|:--|--:|
| `x` | **y** |
| 1 |

Sum: $a_1 + b_1$ for $5 and $10.
$$
- x
> y
$$
\[
z
\]
    code

* * *
end <script>alert(1)</script> &lt; &#65; \*no\*
"""

# Texts of about n characters, as JavaScript, each for a pattern that takes quadratic time in some parser.
HOSTILE = {
    "quotes in quotes": "'> '.repeat(n / 2) + 'a'",
    "many lines of deep quotes": "('>'.repeat(100) + 'a\\n').repeat(n / 102)",
    "lists in lists": "'- '.repeat(n / 2) + 'a'",
    "deep lists and blank lines": "'- '.repeat(n / 4) + 'a' + '\\n'.repeat(n / 2)",
    "lists that go down in steps": "Array.from({length: Math.sqrt(n)}, (_, i) => ' '.repeat(i) + '- a\\n').join('')",
    "unclosed fences": "'```a\\n'.repeat(n / 5)",
    "unclosed fences of every kind": "'```\\n~~~\\n'.repeat(n / 8)",
    "unclosed formulas": "'$$a\\n'.repeat(n / 4)",
    "unclosed formulas in lines of their own": "'\\\\[\\n'.repeat(n / 3) + '\\nx'",
    "unclosed formulas in quotes": "'> \\\\[ a\\n'.repeat(n / 7)",
    "unclosed formulas in a line": "'\\\\(a \\\\[b $$c '.repeat(n / 12)",
    "dollars": "'$a '.repeat(n / 3)",
    "unclosed code": "Array.from({length: Math.sqrt(2 * n)}, (_, i) => '`'.repeat(i + 1) + ' ').join('')",
    "backticks of one kind": "'`` ` '.repeat(n / 5)",
    "emphasis that opens": "'*a **a _a '.repeat(n / 9)",
    "emphasis that closes": "'a* a** a_ '.repeat(n / 9)",
    "emphasis of both kinds": "'*a_ '.repeat(n / 4)",
    "emphasis in emphasis": "'*a **a '.repeat(n / 14) + ' a** a*'.repeat(n / 14)",
    "stars": "'*'.repeat(n)",
    "stars around letters": "'**x'.repeat(n / 3)",
    "brackets that open": "'['.repeat(n)",
    "images that open": "'!['.repeat(n / 4) + '[a](http://b)'.repeat(n / 26)",
    "brackets that close": "'[a]'.repeat(n / 3)",
    "links without an end": "'[a](b'.repeat(n / 5)",
    "links after much space": "('[a](b' + ' '.repeat(3000)).repeat(n / 3005)",
    "links in links": "'['.repeat(n / 13) + '](http://a)'.repeat(n / 13)",
    "addresses": "'http://a**'.repeat(n / 10)",
    "addresses with brackets": "'http://a' + ')'.repeat(n)",
    "addresses in angles": "'<http://a'.repeat(n / 9)",
    "entities": "'&#1'.repeat(n / 3)",
    "a wide head and short rows": "'|a'.repeat(n / 4) + '\\n' + '|-'.repeat(n / 4) + '\\n' + '|\\n'.repeat(n / 4)",
    "a line that looks like a head": "'|-'.repeat(n / 2) + '\\n' + '|-'.repeat(n / 2)",
    "rows": "'a|b\\n-|-\\n' + 'a|b\\n'.repeat(n / 4)",
    "no rule": "'- '.repeat(n / 2) + 'x'",
    "a heading of spaces": "'# ' + ' '.repeat(n) + 'x'",
    "spaces": "'a' + ' '.repeat(n) + 'b'",
    "a long line": "'word '.repeat(n / 5)",
    "tabs": "'\\t'.repeat(n) + 'a'",
}
GROWTH = """async (text, n) => {
    const {MarkdownView} = await import('/ui/markdown.js');
    const times = [];
    for (let i = 0; i < 5; i += 1) {
        const begun = performance.now();
        const view = new MarkdownView(document.createElement('div'));
        view.append(text(n));
        view.render();
        times.push(performance.now() - begun);
    }
    return Math.min(...times);
}"""


class Markdown(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser.open(f"{cls.server.url}/#playground")

    def becomes(self, text, outline):
        with self.subTest(text):
            self.assertEqual(self.browser.value(f"({OUTLINE})({json.dumps(text)})"), outline)

    def test_lines(self):
        for text, outline in (
            ("a **b** *c* ***d*** ~~e~~", "<p>a <strong>b</strong> <em>c</em> <em><strong>d</strong></em> <del>e</del></p>"),
            ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
            ("*a **b*** c", "<p><em>a <strong>b</strong></em> c</p>"),
            ("snake_case_name, 2 * 3 * 4, __init__ of _it_",
             "<p>snake_case_name, 2 * 3 * 4, <strong>init</strong> of <em>it</em></p>"),
            ("**标题：**正文", "<p><strong>标题：</strong>正文</p>"),
            ("**open and *closed*", "<p>**open and <em>closed</em></p>"),
            ("`a*b*` ``c`d`` ` e", "<p><code>a*b*</code> <code>c`d</code> ` e</p>"),
            (r"\*a\* \\ \q", r"<p>*a* \ \q</p>"),
            ("&lt;b&gt; &#65;&#x42; &nope;", "<p>&lt;b&gt; AB &amp;nope;</p>"),
            ("one\n  two", "<p>one\n  two</p>"),
            ("a <br> b <b>c</b>", "<p>a &lt;br&gt; b &lt;b&gt;c&lt;/b&gt;</p>"),
        ):
            self.becomes(text, outline)

    def test_links_lead_to_the_web_and_say_where(self):
        for text, outline in (
            ("https://a.org/b_(c)_d.", '<p><a href="https://a.org/b_(c)_d">https://a.org/b_(c)_d</a>.</p>'),
            ("(see http://a.org)", '<p>(see <a href="http://a.org/">http://a.org</a>)</p>'),
            ("**http://a.org**", '<p><strong><a href="http://a.org/">http://a.org</a></strong></p>'),
            ("<mailto:a@b.org>", '<p><a href="mailto:a@b.org">mailto:a@b.org</a></p>'),
            ("[text *here*](https://a.org 'title')", '<p><a href="https://a.org/">text <em>here</em><span> a.org</span></a></p>'),
            ("[http://good.org](http://evil.org)", '<p><a href="http://evil.org/">http://good.org<span> evil.org</span></a></p>'),
            ("http://good.org@evil.org/", '<p><a href="http://good.org@evil.org/">http://good.org@evil.org/<span> evil.org</span></a></p>'),
            ("[mail](mailto:a@b.org)", '<p><a href="mailto:a@b.org">mail<span> a@b.org</span></a></p>'),
            ("![alt](https://a.org/i.png)", '<p><a href="https://a.org/i.png">alt<span> a.org</span></a></p>'),
            ("[![alt](https://b.org/i.png)](https://a.org)", '<p><a href="https://a.org/">alt<span> a.org</span></a></p>'),
            ("[a [b](http://c.org) d](http://e.org)", '<p>[a <a href="http://c.org/">b<span> c.org</span></a> d](<a href="http://e.org/">http://e.org</a>)</p>'),
        ):
            self.becomes(text, outline)
        for address in ("javascript:alert(1)", "JavaScript:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd",
                        "/relative", "//a.org", "#here", "java&#115;cript:x", " javascript:x", "blob:x", "http://"):
            for text in (f"[a]({address})", f"[a](<{address}>)", f"![a]({address})", f"<{address}>"):
                with self.subTest(text):
                    outline = self.browser.value(f"({OUTLINE})({json.dumps(text)})")
                    self.assertNotIn("<a", outline)
        attributes = self.browser.value("""import('/ui/markdown_inline.js').then(({appendInline}) => {
            const p = document.createElement('p');
            appendInline(p, '[a](https://a.org)');
            return [p.firstChild.rel, p.firstChild.target, p.firstChild.title];
        })""")
        self.assertEqual(attributes, ["noopener noreferrer nofollow", "_blank", "https://a.org/"])

    def test_formulas_stay_text(self):
        for text, outline in (
            ("$a_1 + b_1$ and $x*y*z$", "<p><span>$a_1 + b_1$</span> and <span>$x*y*z$</span></p>"),
            (r"\(a_1 * b\) \[c\]", r"<p><span>\(a_1 * b\)</span> <span>\[c\]</span></p>"),
            ("costs $5 and $10", "<p>costs $5 and $10</p>"),
            ("$$\n- a\n> b\n$$\nafter", "$$\n- a\n&gt; b\n$$<p>after</p>"),
            ("text\n$$\na = b\n$$", "<p>text</p>$$\na = b\n$$"),
            ("$$ a $$ b", "<p><span>$$ a $$</span> b</p>"),
            ("$$\nopen\n\n- a", "<p>$$\nopen</p><ul><li><p>a</p></li></ul>"),
        ):
            self.becomes(text, outline)

    def test_blocks(self):
        for text, outline in (
            ("# a #\n###### b\n#c", "<h3>a</h3><h6>b</h6><p>#c</p>"),
            ("a\n===\nb\n---\n---", "<h3>a</h3><h4>b</h4><hr>"),
            ("```c++ title\n\tint *a;\n  <b>\n```\nafter", "<pre><code>\tint *a;\n  &lt;b&gt;</code></pre><p>after</p>"),
            ("~~~\n```\n~~~", "<pre><code>```</code></pre>"),
            ("```\nnever closed\n\n- a", "<pre><code>never closed\n\n- a</code></pre>"),
            ("a\n\n    code\n\n    more\n\nb", "<p>a</p><pre><code>code\n\nmore</code></pre><p>b</p>"),
            ("> a\n> > b\nc\n\nd", "<blockquote><p>a</p><blockquote><p>b\nc</p></blockquote></blockquote><p>d</p>"),
            ("> ```\n> x\ny", "<blockquote><pre><code>x</code></pre></blockquote><p>y</p>"),
        ):
            self.becomes(text, outline)

    def test_lists(self):
        for text, outline in (
            ("- a\n- b\n  - c\n    1. d\n- e", "<ul><li><p>a</p></li><li><p>b</p><ul><li><p>c</p><ol start=\"1\"><li><p>d</p></li></ol></li></ul></li>"
             "<li><p>e</p></li></ul>"),
            ("3. a\n4. b\n\nc", '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol><p>c</p>'),
            ("1. a\n  - b\n    - c\n2. d", '<ol start="1"><li><p>a</p><ul><li><p>b</p><ul><li><p>c</p></li></ul></li></ul></li><li><p>d</p></li></ol>'),
            ("1. a\n   ```py\nx = 1\n   ```\n2. b", '<ol start="1"><li><p>a</p><pre><code>x = 1</code></pre></li><li><p>b</p></li></ol>'),
            ("- a\n\n  b\n- c", "<ul><li><p>a</p><p>b</p></li><li><p>c</p></li></ul>"),
            ("- a\nlazy\n\nout", "<ul><li><p>a\nlazy</p></li></ul><p>out</p>"),
            ("- a\n* b", "<ul><li><p>a</p></li></ul><ul><li><p>b</p></li></ul>"),
            ("- [ ] a\n- [x] b", '<ul><li><input><p>a</p></li><li><input checked=""><p>b</p></li></ul>'),
            ("The year was\n1914. It", "<p>The year was\n1914. It</p>"),
            ("Steps:\n1. a", '<p>Steps:</p><ol start="1"><li><p>a</p></li></ol>'),
        ):
            self.becomes(text, outline)

    def test_tables(self):
        head = "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody>"
        for text, outline in (
            ("text\n| a | b |\n|---|:-:|\n| 1 | **2** |\nafter", f"<p>text</p>{head}<tr><td>1</td><td><strong>2</strong></td></tr></tbody></table><p>after</p>"),
            ("a|b\n-|-\nx\\|y|z\n1|", f"{head}<tr><td>x|y</td><td>z</td></tr><tr><td>1</td></tr></tbody></table>"),
            ("a|b\n-|-\n`x|y`|1<br>2\n1|2|3", f"{head}<tr><td><code>x|y</code></td><td>1\n2</td></tr><tr><td>1</td><td>2 | 3</td></tr></tbody></table>"),
            ("a|b\n-|-|-", "<p>a|b\n-|-|-</p>"),
        ):
            self.becomes(text, outline)

    def test_markup_of_a_model_is_text(self):
        for around in ("%s", "**%s**", "> %s", "- %s", "# %s", "```\n%s\n```", "```%s\nx\n```", "`%s`", "$%s$", "| %s |\n|---|\n| %s |",
                       "[%s](https://a.org)", '[a](https://a.org "%s")', "[a](https://a.org/%s)", "[a](<https://a.org/%s>)", "![%s](https://a.org/i)"):
            text = around.replace("%s", MARKUP + "<a href='javascript:alert(1)'>x</a><svg onload=alert(1)>")
            with self.subTest(text):
                found = self.browser.value(f"""import('/ui/markdown.js').then(({{MarkdownView}}) => {{
                    const root = document.createElement('div');
                    const view = new MarkdownView(root);
                    view.append({json.dumps(text)});
                    view.render();
                    return [root.querySelectorAll('img, script, svg').length,
                            [...root.querySelectorAll('*')].flatMap((each) => each.getAttributeNames()).filter((name) => name.startsWith('on')),
                            [...root.querySelectorAll('a')].filter((a) => a.protocol !== 'https:').length];
                }})""")
                self.assertEqual(found, [0, [], 0])
        self.assertEqual(self.browser.problems, [])

    def test_depth_is_bounded(self):
        for text in ("> " * 5000 + "a", "- " * 5000 + "a", "**a *a " * 5000 + "a* a** " * 5000, "1. > " * 2000 + "b"):
            depth = self.browser.value(f"""import('/ui/markdown.js').then(({{MarkdownView}}) => {{
                const root = document.createElement('div');
                const view = new MarkdownView(root);
                view.append({json.dumps(text)});
                view.render();
                const depth = (node) => 1 + Math.max(0, ...[...node.children].map(depth));
                return depth(root);
            }})""")
            self.assertGreater(depth, 10)
            self.assertLess(depth, 60)

    def test_what_streams_becomes_what_it_is_as_a_whole(self):
        differing = self.browser.value(f"""import('/ui/markdown.js').then(({{MarkdownView}}) => {{
            const text = {json.dumps(TOUR)};
            const root = document.createElement('div');
            const view = new MarkdownView(root);
            const differing = [];
            for (let i = 0; i < text.length; i += 1) {{
                view.append(text[i]);
                view.render();
                const whole = document.createElement('div');
                const again = new MarkdownView(whole);
                again.append(text.slice(0, i + 1));
                again.render();
                if (root.innerHTML !== whole.innerHTML) differing.push(text.slice(Math.max(0, i - 40), i + 1));
            }}
            return differing;
        }})""")
        self.assertEqual(differing, [])

    def test_time_grows_with_the_length(self):
        for name, text in HOSTILE.items():
            with self.subTest(name):
                few, many = (self.browser.value(f"({GROWTH})((n) => {text}, {n})") for n in (12_000, 96_000))
                self.assertLess(many, 24 * max(few, 4), "eight times the length; quadratic time would be 64 times as much")

    def test_time_of_a_stream_grows_with_its_length(self):
        few, many = (self.browser.value(f"""import('/ui/markdown.js').then(({{MarkdownView}}) => {{
            const text = 'A paragraph with **some** words, and `code`.\\n\\n- a\\n- b\\n\\n```\\ncode\\n```\\n\\n'.repeat({n});
            const begun = performance.now();
            const view = new MarkdownView(document.createElement('div'));
            for (let i = 0; i < text.length; i += 8) {{
                view.append(text.slice(i, i + 8));
                view.render();
            }}
            return performance.now() - begun;
        }})""") for n in (50, 400))
        self.assertLess(many, 24 * few, "eight times the length; quadratic time would be 64 times as much")


class Answers(Case):
    def answered(self, *events):
        page = self.open()
        self.connected()
        self.script(*events)
        self.send("Show me")
        self.answer_ends()
        return page

    def test_code_is_copied(self):
        page = self.answered(delta(content="Look:\n\n```python\nprint('<b>')\n"), delta(content="\n```\n"))
        self.assertEqual(page.text(".code-head span"), "python")
        self.assertEqual(page.text(".code code"), "print('<b>')\n")
        page.value("(navigator.clipboard.writeText = async (text) => { window.copied = text; })")
        page.click(".code .copy")
        self.until("window.copied === \"print('<b>')\\n\"")
        self.until("document.querySelector('#said').textContent === 'Copied'")
        self.assertEqual(page.problems, [])

    def test_thoughts_are_folded_until_they_are_opened(self):
        page = self.answered(delta(reasoning="First **think**"), delta(reasoning=".\n\n- so"), delta(content="Done."))
        self.assertFalse(page.value("document.querySelector('details.thinking').open"))
        self.assertRegex(page.text("details.thinking summary"), "^Thought for ")
        self.assertEqual(page.text(".message.assistant .text"), "Done.")
        page.click("details.thinking summary")
        self.until("document.querySelector('details.thinking strong')?.textContent === 'think'")
        self.until("document.querySelector('details.thinking li')?.textContent === 'so'")
        self.keep("thoughts")

    def test_calls_are_readable(self):
        call = lambda **fields: delta(tool_calls=[{"index": 0, **fields}])
        page = self.answered(call(id="c", function={"name": "weather", "arguments": '{"a": 12345678901234567890, "b": '}),
                             call(function={"arguments": '[1, {}], "c": "x, {\\"y"}'}),
                             delta(tool_calls=[{"index": 1, "id": "d", "function": {"name": "cut", "arguments": '{"a": [1,'}}]))
        self.assertEqual(page.text(".call .code-head strong"), "weather")
        self.assertEqual(page.text(".call pre"),
                         '{\n  "a": 12345678901234567890,\n  "b": [\n    1,\n    {}\n  ],\n  "c": "x, {\\"y"\n}')
        self.assertEqual(page.value("document.querySelectorAll('.call pre')[1].textContent"), '{"a": [1,', "no JSON")
        self.script(delta(content="It rains."))
        self.send("And?")
        self.until("document.querySelectorAll('.message.assistant').length === 2 && document.querySelector('#stop').hidden")
        sent = page.value("asked.at(-1).messages")
        self.assertEqual([each["role"] for each in sent], ["user", "assistant", "user"])
        self.assertEqual(sent[1]["tool_calls"][0], {"id": "c", "type": "function", "function": {
            "name": "weather", "arguments": '{"a": 12345678901234567890, "b": [1, {}], "c": "x, {\\"y"}'}})

    def test_an_answer_that_is_json_is_shown_as_such(self):
        page = self.answered(delta(content='{"a_b_c": '), delta(content='["*x*", 1.50]}'))
        self.assertEqual(page.text(".message.assistant .code code"), '{\n  "a_b_c": [\n    "*x*",\n    1.50\n  ]\n}')

    def test_tables_and_code_scroll_within_the_page(self):
        self.browser.resize(390, 844, mobile=True)
        wide = "| " + " | ".join(f"column {i}" for i in range(30)) + " |\n" + "|---" * 30 + "|\n" + "| value" * 30 + "|\n"
        page = self.answered(delta(content=f"{wide}\n```\n{'x' * 500}\n```\n\n{'y' * 500}\n\nhttps://a.org/{'z' * 300}"))
        self.assertLessEqual(page.value("document.documentElement.scrollWidth"), 390)
        self.assertLessEqual(page.value("document.querySelector('#transcript').scrollWidth"),
                             page.value("document.querySelector('#transcript').clientWidth"))
        self.keep("phone-wide")


if __name__ == "__main__":
    page_case.main()
