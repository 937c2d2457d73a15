"""OpenAI's own API document as validators for answers, stream chunks and errors.

The document says it is OpenAPI 3.1 but marks some members `nullable`, a word of 3.0 that JSON Schema does not know; it
is read as what it meant. Two more corrections, where OpenAI's own server does otherwise than the document says:
  * chunks of streamed completions have a finish_reason of null until the last (the document has one schema for whole
    answers and chunks);
  * the first token of an echoed prompt has neither token_logprobs nor top_logprobs: null.
"""
import copy
import json

import jsonschema


def _nullable_to_null(node):
    if isinstance(node, list):
        return [_nullable_to_null(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _nullable_to_null(value) for key, value in node.items()}
    if node.pop("nullable", False) is True:
        return {"anyOf": [node, {"type": "null"}]}
    return node


class OpenAiSchema:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self._document = _nullable_to_null(json.load(file))
        schemas = self._document["components"]["schemas"]
        choice = schemas["CreateCompletionResponse"]["properties"]["choices"]["items"]["properties"]
        for part in choice["logprobs"]["anyOf"]:
            for name in ("token_logprobs", "top_logprobs"):
                if "properties" in part:
                    part["properties"][name]["items"] = {"anyOf": [part["properties"][name]["items"], {"type": "null"}]}
        chunk = copy.deepcopy(schemas["CreateCompletionResponse"])
        finish = chunk["properties"]["choices"]["items"]["properties"]
        finish["finish_reason"] = {"anyOf": [finish["finish_reason"], {"type": "null"}]}
        # OpenAI sends "usage": null in every chunk but the last when usage is asked for.
        chunk["properties"]["usage"] = {"anyOf": [chunk["properties"]["usage"], {"type": "null"}]}
        schemas["CompletionChunk"] = chunk
        self._resolver = jsonschema.RefResolver("", self._document)

    def check(self, name, value):
        """Raises AssertionError unless `value` is what the document calls `name`."""
        schema = {"$ref": f"#/components/schemas/{name}"}
        errors = list(jsonschema.Draft202012Validator(schema, resolver=self._resolver).iter_errors(value))
        assert not errors, f"{name}: {errors[0].message} at {list(errors[0].absolute_path)} in {json.dumps(value)[:500]}"
