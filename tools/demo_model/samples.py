"""The prompts that the model card shows, and those of golden.json: (name, messages, tools)."""
import json


def function(name, description, properties, required):
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": required,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def user(text):
    return {"role": "user", "content": text}


def system(text):
    return {"role": "system", "content": text}


RESTAURANT = function(
    "FindRestaurants",
    "Find a restaurant of a particular cuisine in a city",
    {"city": "string", "cuisine": "string"},
    ["city"],
)
WEATHER = function("get_weather", "Get the current weather in a city", {"city": "string"}, ["city"])
ALARM = function("create_alarm", "Create an alarm", {"time": "string"}, ["time"])

BOOKING = system("You are a helpful booking assistant.")
IN_SAN_JOSE = user("I want to find a restaurant in San Jose")
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"type": "function", "function": {"name": "FindRestaurants", "arguments": {"city": "San Jose"}}}],
}
RESULT = {
    "role": "tool",
    "content": json.dumps(
        [
            {
                "city": "San Jose",
                "cuisine": "American",
                "phone_number": "408-971-8523",
                "price_range": "moderate",
                "restaurant_name": "71 Saint Peter",
                "street_address": "71 North San Pedro Street",
            }
        ]
    ),
}
FOUND = {"role": "assistant", "content": "I found 71 Saint Peter in San Jose."}

SAMPLES = [
    ("plain chat", [user("Hello")], None),
    ("plain chat, booking", [BOOKING, user("I would like to book a hotel in London.")], None),
    ("tool call", [BOOKING, IN_SAN_JOSE], [RESTAURANT]),
    ("answer after the tool result", [BOOKING, IN_SAN_JOSE, CALL, RESULT], [RESTAURANT]),
    (
        "follow-up on the tool result",
        [BOOKING, IN_SAN_JOSE, CALL, RESULT, FOUND, user("What is their phone number?")],
        [RESTAURANT],
    ),
    ("tool choice", [user("What is the weather in Paris?")], [RESTAURANT, WEATHER]),
    ("tool choice, other order", [user("What's the weather like in Oslo?")], [WEATHER, RESTAURANT]),
    ("unseen tool name", [user("Set an alarm for 7 am")], [ALARM]),
    ("story", [user("Tell me a story about a dog.")], None),
    ("story, named", [user("Tell me a story about Lily.")], None),
    (
        "structured output",
        [
            system("Extract the details as JSON."),
            user("I need a table for 4 people at Bella Italia in San Francisco at 6 pm."),
        ],
        None,
    ),
    ("JSON", [user("Anna is 31 years old and lives in Paris. Reply with JSON.")], None),
    ("copying", [user("Repeat after me: Paris pizza Anna Tokyo")], None),
    (
        "thinking",
        [
            system("Think before you answer."),
            user("Tom has 3 apples and buys 4 more. How many apples does Tom have?"),
        ],
        None,
    ),
    ("general knowledge", [user("What is the capital of France?")], None),
]

# A plain chat, a tool call, and an answer after the tool's result.
GOLDEN = SAMPLES[1:4]
