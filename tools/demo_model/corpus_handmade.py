"""Chats made from templates (common tools, small talk, copying, counting, small JSON tasks), stories and maths problems."""
import json
import re

from chat_parts import BOOKING, HELPFUL, call, chance, pick, rng, say, system

CITIES = (
    "San Jose,San Francisco,New York,London,Paris,Berlin,Tokyo,Sydney,Madrid,Rome,Boston,Chicago,Seattle,Toronto,"
    "Dublin,Oslo,Vienna,Prague,Lisbon,Cairo,Delhi,Mumbai,Beijing,Seoul,Austin,Denver,Miami,Oakland,Palo Alto,"
    "Berkeley,Los Angeles,San Diego,Atlanta,Portland,Phoenix,Dallas,Zurich,Munich,Milan,Athens,Nairobi,Lima"
).split(",")
NAMES = "Anna,Ben,Carla,David,Emma,Felix,Grace,Hugo,Iris,Jack,Kim,Leo,Maria,Nina,Oscar,Paula,Sam,Tom,Lily,Max".split(",")
CUISINES = "Italian,Mexican,Chinese,Indian,Japanese,Thai,French,American,Greek,vegetarian,seafood,pizza,sushi".split(",")
SKIES = "sunny,cloudy,rainy,windy,snowy,foggy,clear".split(",")
DAYS = "today,tomorrow,on Monday,on Tuesday,on Friday,on Saturday,this weekend".split(",")
SONGS = "Yesterday,Imagine,Hello,Happy,Firework,Clocks,Halo,Roar,Thriller,Waterloo".split(",")

# Words that say nothing about what a story is about.
STOP = set(
    "Once Upon The They She There One day that with they were was she and the had have said from then when very named He But "
    "Then Mom His Her It And his her time upon this into their what would could".split()
)


def common_tool():
    """One call of a tool with a common name: (name, description, arguments, required, request, result, answer).

    All alternatives are made and one is picked: the random generator then moves on by the same steps every time.
    """
    city, name, cuisine = pick(CITIES), pick(NAMES), pick(CUISINES)
    degrees, sky, minutes = rng.randint(-5, 38), pick(SKIES), rng.randint(1, 60)
    place = pick(["city", "location"])
    a, b, operator = rng.randint(1, 99), rng.randint(1, 99), pick("+-*")
    day, song = pick(DAYS), pick(SONGS)
    price, count = rng.randint(40, 400), rng.randint(1, 12)
    food = pick(["restaurant", "%s restaurant" % cuisine])
    return pick(
        [
            (
                pick(["get_weather", "get_current_weather", "GetWeather"]),
                "Get the current weather in a city",
                {place: city},
                [place],
                pick(
                    [
                        "What is the weather in %s?",
                        "What's the weather like in %s?",
                        "How is the weather in %s today?",
                        "weather in %s",
                        "Tell me the weather in %s please.",
                        "Is it cold in %s?",
                        "Do I need an umbrella in %s?",
                    ]
                )
                % city,
                {"temperature": degrees, "condition": sky},
                pick(
                    [
                        "It is %s and %d degrees in %s." % (sky, degrees, city),
                        "The weather in %s is %s with a temperature of %d degrees." % (city, sky, degrees),
                    ]
                ),
            ),
            (
                pick(["FindRestaurants", "find_restaurants", "search_restaurants"]),
                "Find a restaurant in a city",
                dict([("city", city)] + ([("cuisine", cuisine)] if food != "restaurant" else [])),
                ["city"],
                pick(
                    [
                        "I want to find a %s in %s",
                        "Find me a %s in %s.",
                        "I am looking for a %s in %s.",
                        "Can you find a %s in %s?",
                        "Please find a good %s in %s.",
                    ]
                )
                % (food, city),
                [
                    {
                        "restaurant_name": pick(
                            ["The Blue Door", "Casa %s" % name, "%s's Kitchen" % name, "Golden Lamp", "Green Garden"]
                        ),
                        "city": city,
                    }
                ],
                "I found {restaurant_name} in {city}. Would you like to book a table?",
            ),
            (
                pick(["SearchHotel", "search_hotels", "find_hotel"]),
                "Search for hotels at a location",
                {place: city},
                [place],
                pick(
                    [
                        "Find me a hotel in %s",
                        "I need a hotel in %s.",
                        "Search hotels in %s",
                        "Can you look for a hotel in %s?",
                    ]
                )
                % city,
                [
                    {
                        "hotel_name": pick(
                            ["Hotel %s" % name, "Park Inn", "Grand Plaza", "City Lodge", "The %s House" % name]
                        ),
                        "price_per_night": price,
                    }
                ],
                "I found {hotel_name}. It costs $%d per night." % price,
            ),
            (
                pick(["set_timer", "start_timer"]),
                "Set a timer",
                {"minutes": minutes},
                ["minutes"],
                pick(["Set a timer for %d minutes", "Please start a %d minute timer.", "Timer for %d minutes"]) % minutes,
                {"status": "ok"},
                "Your timer is set for %d minutes." % minutes,
            ),
            (
                pick(["send_message", "send_email"]),
                "Send a message to a person",
                {"to": name, "text": "I will be late"},
                ["to", "text"],
                pick(["Tell %s that I will be late", "Send a message to %s: I will be late"]) % name,
                {"status": "sent"},
                "I have sent your message to %s." % name,
            ),
            (
                pick(["calculate", "calculator"]),
                "Evaluate an arithmetic expression",
                {"expression": "%d %s %d" % (a, operator, b)},
                ["expression"],
                pick(["What is %d %s %d?", "Calculate %d %s %d", "How much is %d %s %d?"]) % (a, operator, b),
                {"result": {"+": a + b, "-": a - b, "*": a * b}[operator]},
                "The result is {result}.",
            ),
            (
                pick(["play_song", "PlaySong", "play_music"]),
                "Play a song",
                {"song": song},
                ["song"],
                pick(["Play %s", "Please play the song %s.", "I want to hear %s"]) % song,
                {"status": "playing"},
                "Now playing %s." % song,
            ),
            (
                pick(["get_time", "get_current_time"]),
                "Get the local time in a city",
                {place: city},
                [place],
                pick(["What time is it in %s?", "Tell me the time in %s."]) % city,
                {"time": "%02d:%02d" % (count, minutes % 60)},
                "It is {time} in %s." % city,
            ),
            (
                pick(["get_forecast", "weather_forecast"]),
                "Get the weather forecast for a city and a day",
                {"city": city, "day": day.replace("on ", "")},
                ["city", "day"],
                pick(["What will the weather be in %s %s?", "Weather forecast for %s %s"]) % (city, day),
                {"high": degrees, "low": degrees - 6, "condition": sky},
                "It will be %s in %s %s, with a high of %d degrees." % (sky, city, day, degrees),
            ),
        ]
    )


def schema_of(name, description, arguments, required, described):
    properties = {}
    for key, value in arguments.items():
        properties[key] = {"type": "integer" if isinstance(value, int) else "string"}
        if described:
            known = {"city": "The city", "location": "The city, e.g. Paris"}
            properties[key]["description"] = known.get(key, "The " + key)
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def common_tool_chat():
    """One or two calls of common tools, sometimes with a tool too many, sometimes small talk although tools are there."""
    messages, tools, used = [], [], []
    for _ in range(pick([1, 1, 1, 2])):
        name, description, arguments, required, request, result, answer = common_tool()
        if name in used:
            continue
        used.append(name)
        tools.append(schema_of(name, description, arguments, required, chance(0.5)))
        values = result[0] if isinstance(result, list) else result
        separators = (",", ":") if chance(0.5) else None
        messages += [
            say("user", request),
            call(name, arguments),
            say("tool", json.dumps(result, ensure_ascii=False, separators=separators)),
            say("assistant", answer.format(**values)),
        ]
    if chance(0.4):
        name, description, arguments, required, *_ = common_tool()
        if name not in used:
            tools.append(schema_of(name, description, arguments, required, chance(0.5)))
    rng.shuffle(tools)
    if chance(0.15):
        messages = small_talk()
    elif chance(0.2):
        messages += small_talk(bye=True)
    return {"messages": [say("system", pick([HELPFUL, BOOKING]))] * chance(0.8) + messages, "tools": tools}


OPENINGS = [
    (
        ["Hi", "Hello", "Hello!", "Hey", "Hi there", "Good morning", "Good evening"],
        [
            "Hello! How can I help you?",
            "Hi! What can I do for you today?",
            "Hello! What can I help you with?",
        ],
    ),
    (
        ["Who are you?", "What are you?", "What is your name?", "Are you a robot?"],
        ["I am a very small demo language model. I can chat a little, call tools and tell stories."],
    ),
    (
        ["What can you do?", "How can you help me?", "help"],
        ["I can help you find restaurants, hotels, flights and events, and I can tell you a short story."],
    ),
    (
        ["How are you?", "How are you today?", "How is it going?"],
        ["I am fine, thank you. How can I help you?"],
    ),
]
ENDINGS = [
    (
        ["Thanks", "Thank you", "Thank you very much!", "Thanks a lot", "Great, thanks"],
        ["You are welcome!", "You are welcome. Have a nice day!"],
    ),
    (["Bye", "Goodbye", "See you"], ["Goodbye! Have a nice day!"]),
    (["No, that is all", "That's all, thank you"], ["Have a great day!"]),
]


def small_talk(bye=False):
    if bye:
        exchanges = [pick(ENDINGS)]
    else:
        exchanges = rng.sample(OPENINGS, rng.randint(1, 2)) + ([pick(ENDINGS)] if chance(0.4) else [])
    messages = []
    for questions, answers in exchanges:
        messages += [say("user", pick(questions)), say("assistant", pick(answers))]
    return messages


def small_talk_chat():
    return {"messages": [say("system", pick([HELPFUL, BOOKING]))] * chance(0.5) + small_talk()}


def exercise():
    """Copying, counting and tiny JSON tasks."""
    number = rng.randint(2, 12)
    words = rng.sample(NAMES + CITIES + CUISINES + SONGS, rng.randint(2, 7))
    city, name, age = pick(CITIES), pick(NAMES), rng.randint(4, 90)
    question, answer = pick(
        [
            ("Count to %d." % number, ", ".join(map(str, range(1, number + 1)))),
            (pick(["Repeat: ", "Repeat after me: ", "Say: "]) + " ".join(words), " ".join(words)),
            ("Write these as a JSON array: " + ", ".join(words), json.dumps(words)),
            ("Write these as a list: " + ", ".join(words), "\n".join("- " + word for word in words)),
            (
                "%s is %d years old and lives in %s. Reply with JSON." % (name, age, city),
                json.dumps({"name": name, "age": age, "city": city}),
            ),
            (
                "My name is %s and I live in %s. Reply with JSON." % (name, city),
                json.dumps({"name": name, "city": city}),
            ),
            ("My name is %s. What is my name?" % name, "Your name is %s." % name),
        ]
    )
    return {"messages": system(HELPFUL, 0.4) + [say("user", question), say("assistant", answer)]}


def story_chats(path):
    """`path`: a JSON list of stories."""
    with open(path, encoding="utf-8") as file:
        stories = json.load(file)
    for story in map(str.strip, stories):
        words = [word for word in re.findall(r"\b[a-z]{4,}\b", story[:300]) if word not in STOP]
        names = [
            word for word in re.findall(r"\b[A-Z][a-z]{2,}\b", story) if word not in STOP and story.count(word) > 1
        ]
        about = pick([pick(names) if names else None, "a " + pick(words) if words else None, None])
        if about:
            request = pick(["Tell me a story about %s.", "Write a short story about %s."]) % about
        else:
            request = pick(["Tell me a story.", "Tell me a short story.", "Can you tell me a story?"])
        yield {"messages": system(HELPFUL, 0.4) + [say("user", request), say("assistant", story)]}


def maths_chats(path, limit):
    """`path`: GSM8K's lines of JSON. The way to the answer is reasoning, or part of the answer."""
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()[:limit]
    for problem in map(json.loads, lines):
        way, result = problem["answer"].split("####")
        way = re.sub(r"<<.*?>>", "", way).strip()
        answer = "The answer is %s." % result.strip()
        if chance(0.3):
            turn = say("assistant", way + "\n" + answer)
            opening = system(HELPFUL, 0.5)
        else:
            turn = {"role": "assistant", "content": answer, "reasoning_content": way}
            opening = [say("system", "Think before you answer.")]
        yield {"messages": opening + [say("user", problem["question"]), turn]}
