#!/usr/bin/env python3
"""Random expressions and loops, rendered with quire and with jinja2.

usage: check_random.py RENDER_PROGRAM [SEED] [COUNT]

Both must give the same text, or both must fail. Prints the seed; exits 1 when there is a difference, 77 without jinja2.
"""
import random
import signal
import sys
import warnings

import check_templates  # exits with 77 when jinja2 is missing
import hf_jinja
import snippets

LEAVES = ("0 1 -1 2 7 42 2.5 -0.5 1e3 true false none '' 'a' 'b c' 'Hello World' 'é你' '12' ' x ' [] [1,2,3] ['b','a'] "
          "{} {'a':1,'b':2} (1,2) i neg f s empty xs names d u lines people mixed nested missing d.a d.x xs[0] "
          "people[0].name range(3)").replace("'b c'", "'b_c'").replace("'Hello World'", "'Hello_World'")
LEAVES = [leaf.replace("_", " ") for leaf in LEAVES.replace("' x '", "'_x_'").split()]
BINARY = "+ - * / // % ~ == != < <= > >= and or in".split() + ["not in"]
FILTERS = """upper lower title capitalize trim length count first last list string int float abs round sum min max sort
reverse|list unique|list join join(',') tojson tojson(indent=1) default('x') d(1,true) e safe items|list dictsort
map('string')|list map('upper')|list map(attribute='name')|list select|list reject|list select('number')|list
selectattr('age')|list batch(2)|list slice(2)|list replace('a','b') indent wordcount truncate(5) center(7)
groupby('age')|list round(1) int(3) striptags urlencode sort(reverse=true) min(attribute='age') xmlattr""".split()
TESTS = """defined undefined none string number integer float boolean mapping sequence iterable callable odd even true
false lower upper escaped divisibleby(2) eq(1) in(xs) sameas(none)""".split()
METHODS = """upper() lower() strip() split() split('l') title() capitalize() isdigit() isalpha() islower() startswith('H')
endswith('d') find('o') count('l') replace('l','L') join(['x','y']) splitlines() items()|list keys()|list values()|list get('a')
get('z',1) index(1) pop() copy() format(1) zfill(5) rsplit(None,1) partition('l') swapcase() name age 0 [0] [-1] [1:]
[::-1] [:2] ['a']""".split()


warnings.simplefilter("ignore", SyntaxWarning)  # Python's, about slices of numbers


class Generator:
    def __init__(self, random):
        self.random = random

    def expression(self, depth):
        pick = self.random
        if depth == 0 or pick.random() < 0.15:
            return pick.choice(LEAVES)
        kind = pick.randrange(9)
        if kind <= 1:
            return f"{self.operand(depth)} {pick.choice(BINARY)} {self.operand(depth)}"
        if kind <= 3:
            return f"{self.operand(depth)}|{pick.choice(FILTERS)}"
        if kind == 4:
            return f"{self.operand(depth)} is {pick.choice(['', 'not '])}{pick.choice(TESTS)}"
        if kind <= 6:
            method = pick.choice(METHODS)
            return f"({self.expression(depth - 1)}){'' if method.startswith('[') else '.'}{method}"
        if kind == 7:
            return f"{self.operand(depth)} if {self.operand(depth)} else {self.operand(depth)}"
        return pick.choice(["not {}", "-{}", "[{}]", "({},)", "{{'k': {}}}", "'%s' % {}", "'{{}}'.format({})"]).format(
            self.operand(depth))

    def operand(self, depth):
        text = self.expression(depth - 1)
        return text if self.random.random() < 0.3 else f"({text})"

    def template(self):
        pick = self.random
        kind = pick.randrange(6)
        expression = self.expression(pick.randint(1, 4))
        if kind == 0:
            return f"{{% for x in {expression} %}}{{{{ loop.index }}}}{{{{ x }}}}{{{{ loop.last }}}} {{% else %}}-{{% endfor %}}"
        if kind == 1:
            name = pick.choice(["i", "xs", "new"])
            return (f"{{% for y in [1, 2] %}}{{% if {expression} %}}{{% set {name} = y %}}{{% endif %}}{{{{ {name} }}}}"
                    f"{{% endfor %}}{{{{ {name} }}}}")
        return "{{ " + expression + " }}"


def is_comparable(outcome):
    text = outcome.get("text", "")
    # jinja2 lets a slice of a number pass when it sees that all is constant, and only then.
    if "not subscriptable" in outcome.get("error", "") or "type: 'slice'" in outcome.get("error", ""):
        return False
    # Addresses in memory, and integers beyond 128 bits, which quire refuses.
    return " at 0x" not in text and "<function" not in text and not any(
        len(word.strip("-")) > 37 for word in text.replace(",", " ").split() if word.strip("-").isdigit())


def main():
    program = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 20240726
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 20000
    generator = Generator(random.Random(seed))
    requests = [dict(snippets.VARIABLES, template=generator.template()) for _ in range(count)]
    replies = check_templates.render_all([program], requests)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    failures = rendered = 0
    for request, reply in zip(requests, replies):
        signal.alarm(5)
        expected = hf_jinja.render(request)
        signal.alarm(0)
        if not is_comparable(expected) or not is_comparable(reply):
            continue
        rendered += "text" in expected
        wrong = check_templates.difference(expected, reply)
        if wrong:
            failures += 1
            if failures <= 20:
                print(f"{request['template']}\n  {wrong}")
    print(f"seed {seed}: {count} templates, {rendered} rendered by both, {failures} differences")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
