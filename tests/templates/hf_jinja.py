"""jinja2, configured as Hugging Face's apply_chat_template configures it. Its output is the truth of these tests."""
import datetime
import functools
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = "2024-07-26 13:45:06"


class Generation(jinja2.ext.Extension):
    """{% generation %}…{% endgeneration %} marks what the model wrote; for rendering it is a call of its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _render(self, context, caller):
        return caller()


def _raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def _tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(format):
    return datetime.datetime.strptime(NOW, "%Y-%m-%d %H:%M:%S").strftime(format)


ENVIRONMENT = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
)
ENVIRONMENT.filters["tojson"] = _tojson
ENVIRONMENT.globals["raise_exception"] = _raise_exception
ENVIRONMENT.globals["strftime_now"] = _strftime_now


@functools.lru_cache(maxsize=4)
def _compile(source):
    return ENVIRONMENT.from_string(source)


def render(case):
    """{"text": …}, or {"error": …, "raised": whether the template itself raised it}, for a request of render_template."""
    try:
        variables = {
            "messages": case.get("messages", []),
            "tools": case.get("tools"),
            "documents": None,
            "add_generation_prompt": case.get("add_generation_prompt", True),
            "bos_token": case.get("bos_token", ""),
            "eos_token": case.get("eos_token", ""),
            **case.get("kwargs", {}),
        }
        # A copy: templates may pop from lists.
        variables = json.loads(json.dumps(variables))
        return {"text": _compile(case["template"]).render(**variables)}
    except Exception as error:  # whatever goes wrong in Python goes wrong for a client of Hugging Face too
        return {"error": str(error), "raised": type(error) is jinja2.exceptions.TemplateError}
