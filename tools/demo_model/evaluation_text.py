#!/usr/bin/python3
"""A text to measure the demo model's perplexity on: conversations of the kinds that it was trained for, none of them from
its training data. The same text every time.

usage: evaluation_text.py MODEL_DIR > TEXT            about 60 kB, rendered by the model's own chat template
"""
import json
import sys

import corpus_handmade
from chat_parts import BOOKING, HELPFUL, call, chance, pick, rng, say, system
from corpus_handmade import CITIES, CUISINES, NAMES
from tokenizer import load_template

SEED = 20261203
BYTES = 60_000

PLACES = ["The Copper Kettle", "Luna", "Olive Branch", "Harbour View", "Red Lantern", "The Old Mill", "Saffron", "Corner Table"]
HOTELS = ["Hotel Aurora", "Riverside Inn", "The Station House", "Hotel Bellevue", "Maple Lodge", "Seaview Hotel"]
AIRLINES = ["Delta Airlines", "United Airlines", "Southwest Airlines", "American Airlines"]
TIMES = ["11:30 am", "noon", "1 pm", "5:45 pm", "6:30 pm", "7 pm", "half past 7 in the evening", "8:15 pm"]
DATES = ["today", "tomorrow", "next Monday", "March 3rd", "March 8th", "the 12th of March", "next Thursday", "this Saturday"]
NUMBERS = ["two", "three", "four", "five", "six"]


def tool(name, description, required, optional=()):
    properties = {key: {"type": "string"} for key in [*required, *optional]}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def table_chat():
    """A table in a restaurant, found and booked."""
    city, cuisine, place = pick(CITIES), pick(CUISINES), pick(PLACES)
    time, date, people = pick(TIMES), pick(DATES), pick(NUMBERS)
    phone = "%03d-555-%04d" % (rng.randint(200, 999), rng.randint(0, 9999))
    booking = {"restaurant_name": place, "city": city, "time": time, "date": date, "party_size": people}
    messages = [
        say("user", pick(["I am hungry and would like to find a place to eat.", "Can you help me find a restaurant?",
                          "I'm looking for somewhere nice to have dinner."])),
        say("assistant", pick(["Which city should I search in?", "Where would you like to eat, and what kind of food?"])),
        say("user", pick(["Something that serves %s food in %s, please." % (cuisine, city),
                          "I want %s food. I'm in %s." % (cuisine, city)])),
        call("FindRestaurants", {"city": city, "cuisine": cuisine}),
        say("tool", json.dumps([{"restaurant_name": place, "city": city, "cuisine": cuisine, "phone_number": phone}])),
        say("assistant", pick(["There is a nice restaurant called %s in %s." % (place, city),
                               "I found %s in %s. What do you think?" % (place, city)])),
    ]
    if chance(0.5):
        messages += [say("user", pick(["What is their phone number?", "Can I have the phone number?"])),
                     say("assistant", "Their phone number is %s." % phone)]
    messages += [
        say("user", pick(["Sounds good. Please reserve a table.", "I like that one, can you book it for me?"])),
        say("assistant", pick(["For what time?", "What time and for how many people?"])),
        say("user", pick(["For %s people at %s, %s." % (people, time, date), "%s. We are %s people, at %s." % (date, people, time)])),
        say("assistant", "Please confirm: a table for %s at %s in %s, %s at %s." % (people, place, city, date, time)),
        say("user", pick(["Yes, that is right.", "That's correct, thanks.", "Yes please."])),
        call("ReserveRestaurant", booking),
        say("tool", json.dumps([booking])),
        say("assistant", pick(["Your table is booked.", "Your reservation has been made. Enjoy your meal!"])),
        say("user", pick(["Thank you, that is all.", "Great, thanks a lot. Bye."])),
        say("assistant", pick(["Have a great day!", "You are welcome. Goodbye!"])),
    ]
    tools = [tool("FindRestaurants", "Find a restaurant by location and cuisine", ["city", "cuisine"], ["price_range"]),
             tool("ReserveRestaurant", "Reserve a table at a restaurant", list(booking)[:3], list(booking)[3:])]
    return {"messages": system(BOOKING, 0.9) + messages, "tools": tools}


def hotel_chat():
    city, hotel, date, rooms = pick(CITIES), pick(HOTELS), pick(DATES), pick(["one room", "two rooms"])
    price, stars, days = rng.randint(60, 320), rng.randint(2, 5), pick(NUMBERS)
    messages = [
        say("user", pick(["I need a place to stay in %s.", "Find me a hotel in %s, please.", "I'm going to %s and need a hotel."]) % city),
        say("assistant", pick(["When do you want to check in?", "What is your expected check-in date?"])),
        say("user", pick(["I will arrive %s and stay %s days." % (date, days), "%s, for %s nights and %s." % (date, days, rooms)])),
        call("SearchHotel", {"location": city}),
        say("tool", json.dumps([{"hotel_name": hotel, "location": city, "star_rating": str(stars), "price_per_night": "$%d" % price}])),
        say("assistant", pick(["%s is a %d star hotel. It costs $%d per night." % (hotel, stars, price),
                               "I found %s in %s, which has a rating of %d stars." % (hotel, city, stars)])),
        say("user", pick(["Is there wifi?", "How much is it for one night?", "Do you have something else?"])),
        say("assistant", pick(["It is $%d per night." % price, "Yes, they have free wifi.", "I am sorry, there is no other hotel."])),
    ]
    return {"messages": system(BOOKING, 0.9) + messages,
            "tools": [tool("SearchHotel", "Find a hotel at a given location", ["location"], ["star_rating", "number_of_rooms"])]}


def flight_chat():
    origin, goal = rng.sample(CITIES, 2)
    airline, date, price = pick(AIRLINES), pick(DATES), rng.randint(90, 600)
    messages = [
        say("user", pick(["I want to fly to %s." % goal, "Can you search for a flight to %s?" % goal, "I need to travel to %s soon." % goal])),
        say("assistant", pick(["When do you want to leave, and from where?", "What city are you flying out of?"])),
        say("user", pick(["From %s, %s." % (origin, date), "I will leave from %s %s." % (origin, date)])),
        say("assistant", pick(["I found a flight with %s for $%d. It leaves at %s.", "There is a %s flight which costs $%d, at %s."])
            % (airline, price, pick(TIMES))),
        say("user", pick(["Does it have any stops?", "What time does it arrive?", "Ok, that works for me."])),
        say("assistant", pick(["It is a direct flight.", "It arrives at %s." % pick(TIMES), "Do you want me to book it?"])),
    ]
    return {"messages": system(BOOKING, 0.6) + messages}


ANIMALS = ["a small brown dog", "a grey cat", "a little bird", "a green frog", "an old horse", "a shy rabbit"]
THINGS = ["a red ball", "a shiny stone", "a big box", "a blue kite", "a warm hat", "a small boat"]
WHERE = ["in the park", "near the river", "behind the house", "under a big tree", "at the beach", "in the garden"]
FEELINGS = ["very happy", "a little scared", "sad", "so excited", "surprised", "tired"]


def story_chat():
    child, friend = rng.sample(NAMES, 2)
    animal, thing, where = pick(ANIMALS), pick(THINGS), pick(WHERE)
    it = thing.split(" ", 1)[1]
    sentences = [
        pick(["Once upon a time, there was a child named %s.", "One day, %s went outside to play.",
              "%s lived in a small house with a big garden."]) % child,
        "%s liked to play %s." % (child, where),
        pick(["One morning, %s saw %s %s." % (child, thing, where), "One day, %s came and brought %s." % (animal, thing)]),
        '"%s" said %s.' % (pick(["Look!", "What is that?", "Can we play with it?", "I want to share it with you,"]), child),
        "%s was %s." % (child, pick(FEELINGS)),
        pick(["Then %s came and wanted to play too.", "%s came to help.", "But %s said that it was not safe."]) % friend,
        pick(["They took the %s home and showed it to Mom.", "They played with the %s all day.", "The %s fell down and they looked for it."]) % it,
        pick(["%s and %s laughed and hugged.", "Mom smiled and gave %s and %s a snack.", "%s and %s were good friends."]) % (child, friend),
        pick(["They were %s and went home." % pick(FEELINGS), "From that day on, they played together every day.",
              "%s learned that it is good to share." % child]),
    ]
    request = pick(["Tell me a story.", "Tell me a story about %s." % child, "Write a short story about %s." % animal])
    return {"messages": system(HELPFUL, 0.4) + [say("user", request), say("assistant", " ".join(sentences))]}


def conversations():
    makers = [table_chat, table_chat, hotel_chat, flight_chat, story_chat, story_chat, corpus_handmade.common_tool_chat,
              corpus_handmade.exercise]
    while True:
        yield pick(makers)()


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rng.seed(SEED)
    render = load_template(sys.argv[1])
    written = 0
    for chat in conversations():
        text = render(messages=chat["messages"], tools=chat.get("tools"), add_generation_prompt=False)
        sys.stdout.write(text)
        written += len(text.encode())
        if written >= BYTES:
            return


if __name__ == "__main__":
    main()
