#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/template/{constructs,chats}.json: templates and the texts they give.

    apt-get install python3-jinja2        # or any Jinja2 3.1
    npm install --prefix /tmp/goldens @huggingface/jinja@0.5.11
    scripts/make_template_goldens.py /tmp/goldens

Python's Jinja2, set up as Hugging Face's apply_chat_template sets it up, is what templates are
written for and what the vectors hold. @huggingface/jinja runs beside it: where its text differs, the
vector has that as `huggingface_js`, for tests/golden/template/README.md to explain. The C++ tests
need neither.

constructs.txt: a case is a line "= name", then the template up to the next line that begins with
"= " or "# ". chats.json has each conversation of chats_input.json with each of templates/*.jinja.
"""

import datetime
import json
import pathlib
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests/golden/template"
NOW = datetime.datetime(2026, 7, 4, 13, 5, 9)  # the tests' clock
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}


class Generation(jinja2.ext.Extension):
    """{% generation %}, which apply_chat_template adds."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_support")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(template, variables):
    """{"text": …}, or {"error": why}."""
    try:
        return {"text": environment().from_string(template).render(**variables)}
    except Exception as error:  # every way a template can fail
        return {"error": f"{type(error).__name__}: {error}"}


NODE = r"""
const {Template} = await import(process.argv[1] + '/node_modules/@huggingface/jinja/dist/index.js');
let input = '';
for await (const chunk of process.stdin) input += chunk;
const texts = JSON.parse(input).map(({template, variables}) => {
  try {
    return {text: new Template(template).render(variables)};
  } catch (error) {
    return {error: String(error.message ?? error).split('\n')[0]};
  }
});
process.stdout.write(JSON.stringify(texts));
"""


def render_in_node(package, cases):
    result = subprocess.run(["node", "--input-type=module", "-e", NODE, package],
                            input=json.dumps(cases), capture_output=True, text=True, check=True)
    return json.loads(result.stdout)


def read_constructs():
    cases, lines = [], None
    for line in (GOLDEN / "constructs.txt").read_text(encoding="utf-8").split("\n"):
        if line.startswith("= "):
            lines = []
            cases.append((line[2:], lines))
        elif line.startswith("# "):
            lines = None
        elif lines is not None:
            lines.append(line)
    return [(name, "\n".join(lines)) for name, lines in cases]


def with_difference(case, expected, js):
    case.update(expected)
    ours, theirs = expected.get("text"), js.get("text")
    if ours != theirs:
        case["huggingface_js"] = js
    return case


def write(name, cases):
    names = [case["name"] for case in cases]
    assert len(set(names)) == len(names), "names of cases repeat"
    text = json.dumps(cases, ensure_ascii=False, indent=1) + "\n"
    (GOLDEN / name).write_text(text, encoding="utf-8")
    differ = sum("huggingface_js" in case for case in cases)
    print(f"{name}: {len(cases)} cases, {differ} of them not as @huggingface/jinja")


def make_constructs(package):
    inputs = read_constructs()
    js = render_in_node(package, [{"template": t, "variables": {}} for _, t in inputs])
    write("constructs.json", [
        with_difference({"name": name, "template": template}, render(template, {}), there)
        for (name, template), there in zip(inputs, js)])


def make_chats(package):
    chats = json.loads((GOLDEN / "chats_input.json").read_text(encoding="utf-8"))
    cases, node_cases = [], []
    for file in sorted((GOLDEN / "templates").glob("*.jinja")):
        template = file.read_text(encoding="utf-8")
        for name, chat in chats.items():
            variables = {**TOKENS, "messages": chat["messages"], "tools": chat.get("tools"),
                         "documents": chat.get("documents"),
                         "add_generation_prompt": chat.get("add_generation_prompt", True),
                         **chat.get("kwargs", {})}
            cases.append(({"name": f"{file.stem}/{name}", "template": file.name, "chat": name},
                          render(template, variables)))
            node_cases.append({"template": template, "variables": variables})
    js = render_in_node(package, node_cases)
    write("chats.json", [with_difference(case, expected, there)
                         for (case, expected), there in zip(cases, js)])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    make_constructs(sys.argv[1])
    make_chats(sys.argv[1])


if __name__ == "__main__":
    main()
