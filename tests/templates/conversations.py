"""The conversations that every template is tried with."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather <today> in a city & around it",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "City's \"name\", e.g. Zürich or 東京"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius",
                         "description": "Unit"},
                "days": {"type": "integer", "minimum": 1, "maximum": 18446744073709551615, "default": 3,
                         "description": "How many"},
                "at": {"type": "array", "items": {"type": "number"}, "description": "Hours", "nullable": True},
                "where": {"type": "object", "properties": {"lat": {"type": "number", "description": "Latitude"},
                          "lon": {"type": "number"}}, "required": ["lat"], "description": "Position"},
                "ratio": {"oneOf": [{"type": "number"}, {"type": "string"}], "default": 0.5, "description": "R"},
                "exact": {"type": ["boolean", "null"], "description": "E"},
            },
            "required": ["city"],
        },
        "return": {"type": "string", "description": "The forecast"},
    },
}
NO_ARGUMENTS = {
    "type": "function",
    "function": {"name": "now", "description": "Time", "parameters": {"type": "object", "properties": {}}},
}
TOOLS = [WEATHER, NO_ARGUMENTS]

SYSTEM = {"role": "system", "content": "You are terse."}
USER = {"role": "user", "content": "Hello"}
ANSWER = {"role": "assistant", "content": "Hi there."}


def call(arguments, name="get_weather", id="call00001", content=""):
    return {"role": "assistant", "content": content,
            "tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}]}


def result(content, id="call00001", name="get_weather"):
    return {"role": "tool", "tool_call_id": id, "name": name, "content": content}


DICT = {"city": "Zürich", "days": 2, "exact": True, "at": [1, 2.5], "where": {"lat": 47.3, "note": None}}
TEXT = '{"city": "Zürich", "days": 2}'
TWO_CALLS = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "call00001", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Bern"}}},
    {"id": "call00002", "type": "function", "function": {"name": "now", "arguments": {}}}]}

MESSAGES = {
    "empty": [],
    "user": [USER],
    "system user": [SYSTEM, USER],
    "developer user": [{"role": "developer", "content": "Be brief."}, USER],
    "only system": [SYSTEM],
    "two turns": [USER, ANSWER, {"role": "user", "content": "And <b>now</b>?"}],
    "system three turns": [SYSTEM, USER, ANSWER, USER, ANSWER, {"role": "user", "content": " end \n"}],
    "ends with assistant": [USER, ANSWER],
    "two users": [USER, USER],
    "users and assistants": [USER, USER, USER, ANSWER, ANSWER],
    "starts with assistant": [ANSWER, USER],
    "unknown role": [USER, {"role": "critic", "content": "no"}],
    "unicode": [SYSTEM, {"role": "user", "content": "Grüße 你好 👩‍👩‍👧 e\u0301 \u2028 \"quoted\" 'single' \\ \t <|im_end|>"}],
    "blank": [{"role": "user", "content": "  \n\n "}],
    "null content": [USER, {"role": "assistant", "content": None}, USER],
    "absent content": [USER, {"role": "assistant"}, USER],
    "empty content": [{"role": "user", "content": ""}],
    "parts": [{"role": "system", "content": [{"type": "text", "text": "Sys."}]},
              {"role": "user", "content": [{"type": "text", "text": "Look "}, {"type": "text", "text": "here"}]}],
    "image part": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}},
                                                {"type": "text", "text": "What?"}]}],
    "think in content": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHi"}, USER],
    "stray think end": [USER, {"role": "assistant", "content": "a </think> b </think> c"}, USER],
    "think at end": [USER, {"role": "assistant", "content": "<think>hm</think>Hi"}],
    "reasoning_content": [USER, {"role": "assistant", "reasoning_content": "Let me see.\n", "content": "Hi"}, USER],
    "reasoning at end": [USER, {"role": "assistant", "reasoning_content": "Let me see.", "content": "Hi"}],
    "thinking": [USER, {"role": "assistant", "thinking": "Let me see.", "content": "Hi"}, USER],
    "call": [USER, call(DICT)],
    "call text arguments": [USER, call(TEXT)],
    "call broken arguments": [USER, call("{")],
    "call result": [USER, call(DICT), result("12 °C")],
    "call text result": [USER, call(TEXT), result('{"temperature": 12}')],
    "call null content": [SYSTEM, USER, call(DICT, content=None), result("12")],
    "call content reasoning": [USER, dict(call(DICT, content="Checking."), reasoning_content="I need it."), result("12")],
    "call thinking": [USER, dict(call(DICT), thinking="I need it."), result("12")],
    "call content thinking": [USER, dict(call(DICT, content="Checking."), thinking="I need it."), result("12")],
    "call channel markers": [USER, {"role": "assistant", "content": "<|channel|>analysis<|message|>x"}, USER],
    "call result answer": [SYSTEM, USER, call(DICT), result("12"), {"role": "assistant", "content": "It is 12."}, USER],
    "two calls": [USER, TWO_CALLS, result("12"), result("noon", "call00002", "now")],
    "two calls answer": [USER, TWO_CALLS, result("12"), result("noon", "call00002", "now"), ANSWER, USER],
    "two rounds": [SYSTEM, USER, call({"city": "A"}), result("1"), ANSWER, USER, call({"city": "B"}, id="call00003"),
                   result("2", "call00003"), ANSWER, USER],
    "result object": [USER, call(DICT), result({"temperature": 12.0, "wind": None})],
    "result list": [USER, call(DICT), result([{"output": "a"}, {"output": "b"}])],
    "result without call": [USER, result("12")],
    "short id": [USER, call(DICT, id="1"), result("12", "1")],
    "call without id": [USER, {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "now", "arguments": {}}}]}, result("noon")],
    "call without function": [USER, {"role": "assistant", "content": "", "tool_calls": [
        {"name": "now", "arguments": {"a": 1}}]}, result("noon")],
    "no arguments": [USER, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "call00001", "type": "function", "function": {"name": "now"}}]}, result("noon")],
    "python call": [USER, call({"code": "print('hi')\n"}, name="python"), result("hi")],
    "ipython": [USER, call(DICT), {"role": "ipython", "content": "12"}],
    "names": [dict(USER, name="Ann"), dict(ANSWER, name="Bot"), dict(USER, name="Ann")],
    "prefix": [USER, {"role": "assistant", "content": "Hi", "prefix": True}],
}

TOOL_SETS = {"no tools": None, "empty tools": [], "tools": TOOLS, "interpreter": [{"type": "code_interpreter"}, WEATHER]}

KWARGS = [
    {},
    {"enable_thinking": True},
    {"enable_thinking": False},
    {"thinking": True},
    {"reasoning_effort": "high", "builtin_tools": ["browser", "python"], "model_identity": "You are quire."},
    {"documents": [{"title": "A", "text": "Täxt"}, {"title": "B", "text": "b"}], "enable_citations": True},
    {"date_string": "1 Jan 2030", "tools_in_user_message": False, "custom_tools": TOOLS},
    {"xml_tools": "x", "python_tools": "y", "custom_instructions": "z", "add_default_system": False},
]


def cases(template, thorough=True):
    """(name, request) for one template. Every conversation with every set of tools; every keyword set with some."""
    for name, messages in MESSAGES.items():
        for tools_name, tools in TOOL_SETS.items():
            for prompt in (True, False):
                if not thorough and (tools_name in ("empty tools", "interpreter")):
                    continue
                for number, kwargs in enumerate(KWARGS):
                    if number > 2 and (not thorough or tools_name in ("empty tools", "interpreter") or not prompt):
                        continue
                    request = {"template": template, "messages": messages, "add_generation_prompt": prompt,
                               "bos_token": "<s>", "eos_token": "</s>", "kwargs": kwargs}
                    if tools is not None:
                        request["tools"] = tools
                    yield f"{name}, {tools_name}, prompt {prompt}, {kwargs}", request
