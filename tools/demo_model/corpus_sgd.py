"""Chats from the Schema-Guided Dialogue corpus: its service calls become tool calls, its schemas function schemas, its slot
annotations JSON extraction tasks."""
import json
import re
import subprocess

from chat_parts import BOOKING, call, chance, pick, rng, say


def snake(name):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Tools:
    """The tools of one chat: SGD's intents as functions. Their names are sometimes changed, so that the model learns to
    copy them instead of remembering them."""

    def __init__(self, style):
        self.style, self.definitions = style, {}

    def name(self, intent_name):
        return snake(intent_name) if self.style == "snake" else intent_name

    def add(self, schema, intent, required=None):
        if intent["name"] in self.definitions:
            return
        slots = {slot["name"]: slot for slot in schema["slots"]}
        properties = {}
        for name in list(intent["required_slots"]) + list(intent["optional_slots"]):
            slot, entry = slots[name], {"type": "string"}
            if self.style == "long":
                entry["description"] = slot["description"]
            if slot["is_categorical"] and len(slot["possible_values"]) <= 4 and self.style != "short":
                entry["enum"] = slot["possible_values"]
            properties[name] = entry
        parameters = {
            "type": "object",
            "properties": properties,
            "required": required if required is not None else intent["required_slots"],
        }
        function = {"name": self.name(intent["name"]), "description": intent["description"], "parameters": parameters}
        self.definitions[intent["name"]] = {"type": "function", "function": function}

    def shuffled(self):
        tools = list(self.definitions.values())
        rng.shuffle(tools)
        return tools


def result(rows):
    separators = (",", ":") if chance(0.5) else None
    return say("tool", json.dumps(rows, ensure_ascii=False, separators=separators))


def rows_of(frame, offered):
    """At most three of the service's results, those that the assistant goes on to offer first."""
    results = frame["service_results"]
    keep = [row for row in results if any(value in offered for value in row.values())][:3]
    keep += [row for row in results if row not in keep][: max(0, rng.randint(1, 3) - len(keep))]
    return [row for row in results if row in keep]


def offered_values(turns):
    """What the assistant goes on to offer or state, up to its next call."""
    values = set()
    for number, turn in enumerate(turns):
        if turn["speaker"] != "SYSTEM":
            continue
        if number and any("service_call" in frame for frame in turn["frames"]):
            break
        for frame in turn["frames"]:
            for action in frame["actions"]:
                if action["act"] == "OFFER" and action["slot"] not in ("city", "date", "time"):
                    values.update(action["values"])
    return values


def has_call(turn):
    return any("service_call" in frame for frame in turn["frames"])


def tool_chat(dialogue, schemas, merge=False):
    """A dialogue with its service calls as tool calls. With `merge`, all that the user said before the first call becomes
    one opening message, so that the call comes at once; None when there is no early call."""
    tools, messages = Tools(pick(["plain", "plain", "snake", "long", "short"])), []
    turns = dialogue["turns"]
    first = next((number for number, turn in enumerate(turns) if has_call(turn)), None)
    if merge:
        if first is None or first > 9:
            return None
        said = [turn["utterance"].strip() for turn in turns[:first] if turn["speaker"] == "USER"]
        messages.append(say("user", " ".join(said)))
        turns = turns[first : first + rng.randint(3, 6)]
    for number, turn in enumerate(turns):
        if turn["speaker"] == "USER":
            messages.append(say("user", turn["utterance"]))
            continue
        for frame in turn["frames"]:
            if "service_call" not in frame:
                continue
            made, schema = frame["service_call"], schemas[frame["service"]]
            intent = next(intent for intent in schema["intents"] if intent["name"] == made["method"])
            given = [name for name in intent["required_slots"] if name in made["parameters"]] if merge else None
            tools.add(schema, intent, given)
            messages.append(call(tools.name(made["method"]), made["parameters"]))
            messages.append(result(rows_of(frame, offered_values(turns[number:]))))
        messages.append(say("assistant", turn["utterance"]))
    if not tools.definitions or chance(0.45):
        schema = schemas[pick(dialogue["services"])] if chance(0.6) else schemas[pick(sorted(schemas))]
        tools.add(schema, pick(schema["intents"]))
    while messages and messages[-1]["role"] != "assistant":
        messages.pop()
    return {"messages": [say("system", BOOKING)] * chance(0.9) + messages, "tools": tools.shuffled()}


def quick_calls(dialogue, schemas):
    """Turns that state the intent and the slots at once: the call follows when every required slot is given."""
    chats = []
    for number, turn in enumerate(dialogue["turns"]):
        if turn["speaker"] != "USER" or len(turn["frames"]) != 1:
            continue
        frame = turn["frames"][0]
        acts = {action["act"] for action in frame["actions"]}
        given = {
            action["slot"]: action["canonical_values"][0]
            for action in frame["actions"]
            if action["act"] == "INFORM" and action["canonical_values"]
        }
        if "INFORM_INTENT" not in acts or not given or acts - {"INFORM_INTENT", "INFORM"}:
            continue
        schema = schemas[frame["service"]]
        intent = next(intent for intent in schema["intents"] if intent["name"] == frame["state"]["active_intent"])
        known = set(intent["required_slots"]) | set(intent["optional_slots"])
        given = {slot: value for slot, value in given.items() if slot in known and value != "dontcare"}
        if not given or (number and not set(intent["required_slots"]) <= set(given)):
            continue
        tools = Tools(pick(["plain", "snake", "long", "short"]))
        tools.add(schema, intent, [name for name in intent["required_slots"] if name in given])
        if chance(0.4):
            other = schemas[pick(sorted(schemas))]
            tools.add(other, pick(other["intents"]))
        turns = [say("user", turn["utterance"]), call(tools.name(intent["name"]), dict(sorted(given.items())))]
        chats.append({"messages": [say("system", BOOKING)] * chance(0.9) + turns, "tools": tools.shuffled()})
    return chats


def extractions(dialogue):
    """Structured output: the slots of a user turn as a JSON object."""
    chats = []
    for turn in dialogue["turns"]:
        if turn["speaker"] != "USER" or len(turn["frames"]) != 1:
            continue
        slots = turn["frames"][0]["slots"]
        found = {slot["slot"]: turn["utterance"][slot["start"] : slot["exclusive_end"]] for slot in slots}
        if len(found) < 2:
            continue
        ask = pick(
            [
                "Extract the details as JSON.",
                "Reply with a JSON object.",
                "Return a JSON object with the keys " + ", ".join(found) + ".",
            ]
        )
        if chance(0.5):
            messages = [say("system", ask), say("user", turn["utterance"])]
        else:
            messages = [say("user", ask + "\n\n" + turn["utterance"])]
        chats.append({"messages": messages + [say("assistant", json.dumps(found, ensure_ascii=False))]})
    return chats


def dialogues(git_dir, split):
    """(dialogue, schemas of the split) from a clone of the corpus; files that a partial clone lacks are left out."""

    def git(*arguments):
        return subprocess.run(["git", "--git-dir=" + git_dir, *arguments], capture_output=True).stdout

    schemas = {schema["service_name"]: schema for schema in json.loads(git("show", f"HEAD:{split}/schema.json"))}
    for line in git("ls-tree", "-r", "-l", "HEAD", split).decode().splitlines():
        metadata, path = line.split("\t")
        if "dialogues_" in path and metadata.split()[3] != "BAD":
            for dialogue in json.loads(git("show", "HEAD:" + path)):
                yield dialogue, schemas
