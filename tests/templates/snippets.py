"""Small templates, one for each thing that the language does. make_golden.py renders them with jinja2.

EXPRESSIONS stand alone in {{ … }}; STATEMENTS are whole templates. Both see VARIABLES.
"""

VARIABLES = {
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "n": 2},
                 {"role": "user", "content": "Bye", "n": 1}],
    "tools": None,
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "kwargs": {
        "s": "Hello World", "empty": "", "u": "Grüße, ΟΔΥΣΣΕΥΣ straße ǆ 你好 👩‍👧 e\u0301", "lines": "a\n\n  b\r\nc\x0bd\n",
        "i": 42, "neg": -7, "zero": 0, "f": 2.5, "big": 18446744073709551615, "tiny": 1e-7, "huge": 1e16,
        "t": True, "no": False, "null": None,
        "xs": [3, 1, 2], "names": ["bob", "Alice", "carol", "alice"], "nested": [[1, 2], [3, [4]], []],
        "d": {"b": 1, "a": 2, "C": 3}, "deep": {"a": {"b": [{"c": "x"}]}, "items": "own"},
        "people": [{"name": "Bob", "age": 30, "tags": ["x"]}, {"name": "alice", "age": 25},
                   {"name": "Carol", "age": 30, "tags": []}],
        "html": "<a href=\"x\">T&C's</a>", "mixed": [1, "a", None, 2.0, True, [], {}],
    },
}

EXPRESSIONS = r"""
1
-1
1.0
1e3
1e16
123456789012345678.0
1e-5
0.1 + 0.2
1_000
0x1F + 0o17 + 0b11
2 ** 10
2 ** -1
-2 ** 2
2 ** 3 ** 2
2 ** 100
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 // 2
-7.5 % 2
7.5 % -2
1 / 3
6 / 3
1 / 0
1 // 0
1 % 0
1.5 / 0
true + true
true * 3
not 1
+5
- -5
'a' 'b' "c"
'a' + 'b'
'a' * 3
3 * 'ab'
'a' * -1
[1] * 2
[1] + [2]
(1,) + (2, 3)
[1] + (2,)
'a' + 1
1 + 'a'
'a' ~ 1 ~ none ~ 1.0 ~ [1]
'a' ~ missing ~ 'b'
1 ~ 2 + 3
1 + 2 ~ 3
2 * 3 ~ 4
s
i
f
big
tiny
huge
t
null
none
None
True
false
missing
missing.x
missing['x']
missing + 1
missing == missing
missing == none
missing is defined
missing is undefined
missing or 'default'
missing and 'x'
missing in [1]
'x' in missing
missing|length
missing|list
missing|upper
missing|int
missing|default('d')
missing|tojson
missing()
missing[1:]
-missing
none.x
none['x']
none.x.y
i.x
i.real
i.x.y
xs
xs[0]
xs[-1]
xs[3]
xs[3].x
xs['0']
xs.0
xs[1:]
xs[:-1]
xs[::-1]
xs[::2]
xs[-2:]
xs[5:]
xs[1:2:0]
xs['a':]
xs[none:2]
s[0]
s[-1]
s[1:4]
s[::-1]
s[100]
u[2]
u[::-1]
u[-3:]
u|length
d
d.a
d['a']
d['x']
d.x
d.items()
d.keys()
d.values()
d.items()|list
d.get('a')
d.get('x')
d.get('x', 5)
d.get('x', default=5)
d['a', 'b']
d[['a']]
d[1:2]
deep.a.b[0].c
deep['a']['b'][0]['c']
deep.items
deep['items']
deep.items()|list|length
deep.a.b.0.c
{'a': 1, 2: 'b', none: 3, 1.5: 4, true: 5, (1, 2): 6}
{'a': 1, 'a': 2}
{1: 'a', 1.0: 'b', true: 'c'}
{[1]: 2}
()
(1,)
(1, 2)
1, 2
[1, 'a', none, true, 2.5, [], {}, ()]
[1, 2,]
{'a': 1,}
'it\'s'
"say \"hi\""
['it\'s', "q\"q", 'b\\s', 'n\nl', 'tab\t', '\x00\x7f\xa0é\u200b']
'\x41\u00e9\U0001F600\101\a'|length
'\q\é'
'a\
b'
1 == 1.0
1 == true
'1' == 1
[1, 2] == [1.0, 2]
(1, 2) == [1, 2]
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
1 != 2
1 < 2
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1 == 1
'a' < 'b'
'a' < 'B'
'Z' < 'a'
[1, 2] < [1, 3]
[1] < [1, 0]
1 < 'a'
none < 1
[1] < (2,)
{} < {}
1 in xs
5 not in xs
'ell' in s
1 in 'a1'
'a' in d
1 in d
[1] in d
none in mixed
'' in s
1 in 5
1 in none
not 1 in xs
not (1 in xs)
true and false or true
1 and 2
0 and 2
0 or ''
none or 0 or []
1 or 1/0
'yes' if i else 'no'
'yes' if zero else 'no'
'yes' if zero
('yes' if zero) is defined
1 if 0 else 2 if 0 else 3
1 if 1 else 2 if 0 else 3
xs|length
d|length
5|length
xs|count
xs|first
xs|last
[]|first
[]|last
d|first
d|last
s|first
s|last
''|first
xs|map('string')|first
xs|map('string')|last
xs|sort
xs|sort(reverse=true)
names|sort
names|sort(case_sensitive=true)
names|sort(reverse=true)
people|sort(attribute='age')|map(attribute='name')|join(',')
people|sort(attribute='age,name')|map(attribute='name')|join(',')
people|sort(attribute='age', reverse=true)|map(attribute='name')|join(',')
[1, 'a']|sort
[none, 1]|sort
d|dictsort
d|dictsort(true)
d|dictsort(by='value')
d|dictsort(false, 'value', true)
d|dictsort(by='x')
names|unique|list
names|unique(true)|list
people|unique(attribute='age')|map(attribute='name')|list
[1, 1.0, true, 2]|unique|list
[[1]]|unique|list
people|groupby('age')
people|groupby('age')|map(attribute='grouper')|list
people|groupby('age')|map(attribute='list')|map('length')|list
(people|groupby('age'))[0].grouper
people|groupby('tags.0', default='-')|map('first')|list
names|groupby(0)|map('first')|list
xs|sum
[]|sum
people|sum(attribute='age')
[[1], [2]]|sum(start=[])
['a']|sum
xs|min
xs|max
names|min
names|max
names|max(case_sensitive=true)
people|max(attribute='age')
[]|max
[1, 'a']|max
xs|reverse|list
s|reverse
d|reverse|list
xs|reverse|length
xs|join
xs|join(', ')
people|join(', ', attribute='name')
mixed|join('|')
'abc'|join('-')
5|join
xs|batch(2)|list
xs|batch(2, 'x')|list
xs|slice(2)|list
xs|slice(2, 'x')|list
range(10)|slice(3)|map('list')|list
xs|map('string')|list
xs|map('pow')|list
names|map('upper')|list
names|map('replace', 'a', 'o')|join(' ')
people|map(attribute='name')|list
people|map(attribute='tags')|list
people|map(attribute='tags', default=[])|list
people|map(attribute='tags.0')|list
people|map(attribute='nothing.x')|list
nested|map('first')|list
xs|map|list
xs|map(attribute='a', foo=1)|list
xs|select|list
mixed|select|list
mixed|reject|list
xs|select('odd')|list
xs|select('gt', 1)|list
xs|select('divisibleby', 3)|list
xs|reject('odd')|list
mixed|select('string')|list
mixed|select('number')|list
mixed|reject('none')|list
people|selectattr('tags')|map(attribute='name')|list
people|selectattr('age', 'equalto', 30)|list|length
people|selectattr('age', '>', 25)|map(attribute='name')|list
people|rejectattr('age', 'eq', 30)|map(attribute='name')|list
people|selectattr('tags', 'defined')|list|length
people|rejectattr('tags', 'undefined')|list|length
people|selectattr|list
xs|select('nonesuch')|list
'yes' if (xs|select('gt', 100)) else 'no'
xs|select('gt', 100)|list|length > 0
d|items|list
missing|items|list
5|items|list
d.items()|map('first')|list
none|default('x')
none|default('x', true)
''|default('x', true)
0|d('x', boolean=true)
'  a b  '|trim
'xxaxx'|trim('x')
'a'|trim('abc') == ''
5|trim
s|upper
s|lower
u|upper
u|lower
u|title
u|capitalize
u.title()
u.swapcase()
u.casefold()
'hello wORLD-foo (bar'|title
'hello wORLD-foo (bar'.title()
'they\'re bill\'s'.title()
'they\'re bill\'s'|title
none|upper
true|lower
s|replace('l', 'L')
s|replace('l', 'L', 1)
s|replace('', '-')
s|replace('o', 1)
123|replace(2, 'x')
lines|indent
lines|indent(2, true)
lines|indent(2, first=true, blank=true)
lines|indent('> ')
''|indent
5|indent
('word ' * 60)|truncate(20)
('word ' * 60)|truncate(20, true)
('word ' * 60)|truncate(20, false, '…')
'short'|truncate(3)
'short'|truncate(2)
'exactly eleven'|truncate(10, leeway=0)
s|wordcount
'a-b c_d  é!'|wordcount
s|center(21)
'ab'|center(5)
'abc'|center(6)
s|string
5|string
html|e
html|escape|escape
html|safe
html|safe|e
html|forceescape
html|safe|forceescape
html|striptags
'&lt;b&gt; &amp; &#65;&#x42; &unknown;'|striptags
html|urlencode
'a/b c?é=1&2'|urlencode
{'a b': 'c&d', 'e': 1}|urlencode
[('x', 1), ('y', 'z/')]|urlencode
5|urlencode
{'class': 'a&b', 'no': none, 'id': 5}|xmlattr
'%s is %d'|format('x', 5)
'%(a)s'|format(a=1)
'<'|safe + '<'
'<' + '<'|safe
'<'|safe ~ '<'
('<'|safe).upper()
('<b>'|safe).replace('b', '<')
('<%s>'|safe) % '<'
('<{}>'|safe).format('<')
('-'|safe).join(['<', '>'|safe])
['<', '>'|safe]|join('-')
('<'|safe) is escaped
'<' is escaped
('a<'|safe)[0] + '<'
('a b'|safe).split()[0] + '<'
['<'|safe]
('<'|safe) * 2 + '<'
('<'|safe)|tojson
('<'|safe) == '<'
'5'|int
' 5 '|int
'5.7'|int
'x'|int
'x'|int(7)
'0x1F'|int(base=16)
'1F'|int(0, 16)
'0b11'|int(0, 0)
'1_000'|int
none|int
[]|int(3)
5.9|int
-5.9|int
true|int
'1e3'|int
'5'|float
'x'|float
'x'|float(1.5)
'inf'|float
'nan'|float
'-Infinity'|float
'1e400'|float
none|float
5|float
2.5|round
3.5|round
2.675|round(2)
-2.5|round
42|round
42.7|round(method='floor')
42.1|round(method='ceil')
42.123|round(1, 'ceil')
1234|round(-2)
1250|round(-2)
1350|round(-2)
1234.5|round(-2)
42|round(method='floor')
42|round(method='x')
'a'|round
-5|abs
-2.5|abs
'a'|abs
xs|tojson
d|tojson
mixed|tojson
u|tojson
u|tojson(ensure_ascii=true)
'\x00\x1f\x7f"\\/\b\f\n\r\t\u2028<>&\''|tojson
'\x7f é'|tojson(true)
deep|tojson(indent=2)
deep|tojson(indent=0)
deep|tojson(indent='--')
deep|tojson(false, 4)
d|tojson(separators=(',', ':'))
d|tojson(separators=[', ', ' = '])
d|tojson(sort_keys=true)
{'b': {'d': 1, 'c': 2}, 'a': [{'z': 1, 'y': 2}]}|tojson(sort_keys=true, indent=1)
{1: 'a', none: 'b', true: 'c', 1.5: 'd'}|tojson
{(1, 2): 'a'}|tojson
{1: 'a', 'b': 2}|tojson(sort_keys=true)
[]|tojson(indent=2)
{}|tojson(indent=2)
[[], {}]|tojson(indent=2)
(1, 2)|tojson
[1.0, 1e16, 1e-7, 0.1, 1e22, 123456789.125]|tojson
['inf'|float, 'nan'|float, '-inf'|float]|tojson
big|tojson
range(3)|tojson
xs|map('string')|tojson
namespace(a=1)|tojson
d.items()|tojson
1000|filesizeformat
1|filesizeformat
1500000|filesizeformat
1500000|filesizeformat(true)
d|attr('a')
d|attr('items') is callable
range(5)
range(5)|list
range(1, 10, 3)|list
range(10, 0, -3)|list
range(5)[1:3]
range(5)[-1]
range(5)[::-1]
range(5)|length
range('a')
range(1, 2, 0)
3 in range(5)
range(0) is iterable
dict(a=1, b=2)
dict([('a', 1), ('b', 2)], c=3)
dict(d, z=1)
namespace(a=1)
namespace(a=1).a
namespace(a=1).b
namespace(a=1)['a']
namespace({'x': 1}).x
joiner('|')()
s.upper()
s.lower()
s.split()
s.split('o')
s.split('o', 1)
s.split(maxsplit=1)
'  a  b  c '.split(none, 1)
'  a  b  c '.rsplit(none, 1)
'a,b,c'.rsplit(',', 1)
'a,b,,c'.split(',')
''.split()
''.split(',')
'a'.split('')
s.split(sep=' ')
lines.splitlines()
lines.splitlines(true)
'a,b'.partition(',')
'a,b,c'.rpartition(',')
'abc'.partition(',')
s.strip('Hd')
s.lstrip('He')
s.rstrip('dl')
'\n\t x \u00a0'.strip()|length
s.strip(5)
s.startswith('Hello')
s.startswith(('x', 'H'))
s.startswith('World', 6)
s.endswith('ld')
s.endswith(('x', 'ld'))
s.endswith('lo', 0, 5)
s.startswith(['H'])
s.startswith(5)
s.find('o')
s.find('o', 5)
s.rfind('o')
s.find('z')
u.find('你')
s.index('W')
s.index('z')
s.count('l')
s.count('')
s.replace('l', 'L', 2)
s.replace('', '.')
s.join(['a', 'b'])
', '.join(names)
','.join([1])
','.join('abc')
s.removeprefix('Hello ')
s.removesuffix('World')
'5'.zfill(3)
'-5'.zfill(4)
'ab'.ljust(4, '.') + '|'
'ab'.rjust(4, '.')
'ab'.center(5, '.')
'a\tb\tc'.expandtabs(4)
'abc'.isalpha()
'ab1'.isalnum()
'12'.isdigit()
'²'.isdigit()
'²'.isdecimal()
'½'.isnumeric()
'一'.isnumeric()
' \t'.isspace()
''.isspace()
'abc'.islower()
'ABC1'.isupper()
'Abc Def'.istitle()
'a_1'.isidentifier()
'a\n'.isprintable()
'é'.isascii()
'{} {}'.format(1, 'a')
'{0} {1} {0}'.format('a', 'b')
'{a} {b.c} {d[e]} {f[0]}'.format(a=1, b={'c': 2}, d={'e': 3}, f=[4])
'{:>5}|{:<5}|{:^5}|{:*^5}'.format('a', 'b', 'c', 'd')
'{:5}|{:05}|{:+}|{:,}|{:x}|{:#X}|{:b}|{:e}|{:.2f}|{:%}|{:g}'.format(1, 2, 3, 1234567, 255, 255, 5, 1234.5, 3.14159, 0.25, 1e10)
'{:.3}|{:10.3}|{:s}'.format('abcdef', 'abcdef', 'x')
'{:.3}|{:}|{:.1f}|{:06.2f}'.format(1234.5, 2.0, 0.25, -1.5)
'{!r} {!s} {!a}'.format('é', 'é', 'é')
'{:{}}|'.format('a', 5)
'{{}} {}'.format(1)
'{}'.format()
'{a}'.format()
'{'.format(1)
'}'.format(1)
'{:d}'.format('a')
'{:z}'.format(1)
'{}'.format(none)
'{:>5}'.format(none)
'%s %r %d %i %5.2f %x %o %e %g %c %%' % ('a', 'b', 3, 4, 1.5, 255, 8, 12345.678, 0.0001, 'z')
'%5s|%-5s|%05d|%+d|% d' % ('a', 'b', 3, 4, 5)
'%s' % 5
'%s' % [1, 2]
'%s %s' % (1,)
'%s' % (1, 2)
'%(x)s %(y)d' % {'x': 1, 'y': 2}
'%d' % 'a'
'%d' % 5.9
'x' % 5
'%.3s' % 'abcdef'
'%*d' % (5, 3)
'%#x %#o' % (255, 8)
'%s' % none
'%s' % missing
[3, 1].index(1)
[3, 1, 3].count(3)
[3, 1].index(9)
[1, 2].pop()
[1, 2, 3].pop(0)
[].pop()
[1].append(2)
[1].append
[1].append is defined
d.pop('a')
d.update({})
xs.sort()
d.copy() == d
xs.copy()
(1, 2).count(1)
(1, 2).index(2)
s.__class__
s.__class__.__mro__
''.__class__ is defined
i is number
i is integer
f is float
f is number
t is boolean
t is number
t is integer
s is string
(html|safe) is string
d is mapping
xs is mapping
xs is sequence
d is sequence
s is sequence
i is sequence
range(3) is sequence
xs|map('string') is sequence
d.items() is sequence
xs is iterable
s is iterable
i is iterable
xs|map('string') is iterable
missing is iterable
missing is sequence
none is iterable
i is odd
i is even
i is divisibleby 7
i is divisibleby(5)
i is not divisibleby 7
'a' is odd
i is eq 42
i is == 42
i is gt 41
i is lt(43)
i is ne 1
i is le 42
i is ge 42
i is equalto 42
i is sameas 42
none is sameas none
1 is sameas 1.0
xs is sameas xs
1 is in [1, 2]
1 is in(xs)
'a' is not in d
range is callable
s.upper is callable
s is callable
none is none
missing is none
t is true
no is false
1 is true
'abc' is lower
'ABC' is upper
'upper' is filter
'nope' is filter
'odd' is test
i is defined and i > 40
i is defined or nope.x
i is not defined
not i is defined
i is nonesuch if false else 'ok'
i|nonesuch if false else 'ok'
i|nonesuch if true else 'ok'
messages|length
messages[0].role ~ messages[-1]['content']
messages|map(attribute='role')|unique|join
messages|selectattr('content')|list|length
messages[::-1]|map(attribute='role')|list
bos_token + eos_token
raise_exception('own words: ' ~ i)
raise_exception(5)
raise_exception()
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %y %I %p')
add_generation_prompt
tools
documents
(1 if true else 2) + 1
(xs|first) + 1
xs|first + 1
-5|abs
-i|abs
not xs|first
s|upper|lower|title
s[:3]|upper
s.split()[0].upper()
[1, 2, 3][1]
{'a': {'b': 1}}['a'].b
'abc'[1]
(1, 2)[0]
'a' in 'abc' and 'b' in 'abc'
'a' not in 'abc'
dict(**d)
dict(**{'x': 1}, **{'y': 2})
dict(*[[('a', 1)]])
range(*[1, 4])|list
s.replace(*['o', '0'])
s|replace(old='o', new='0')
s|replace('o')
s|replace('o', '0', 1, 2)
s|replace('o', foo=1)
s|upper(1)
loop
loop is defined
caller is defined
varargs is defined
x.y.z is defined
d.x.y
d.x.y is defined
d.x is defined
people[0].name[0]
people[5].name
people[5] is defined
people[0]['nope'] is defined
[[1, 2], [3, 4]]|map('join', '-')|join(' ')
[1, 2, 3]|map('float')|map('string')|join
['a', 'b']|map('tojson')|join(', ')
1 == 1 == 1
1 < 2 and 2 < 3
1, 'a', [2]
[1, 2, 3]|sum / 2
10 % 3 * 2
2 + 3 * 4 - 1
(2 + 3) * 4
7 // 2 * 2 + 7 % 2
1 - 1 - 1
2 * 2 / 4
'a' ~ 'b' == 'ab'
1 + 1 == 2
not true == false
1.5 + 1
1e308 * 10
-1e308 * 10
2 ** 0.5
0 ** 0
0 ** -1
0.0 == -0.0
-0.0
1e16 + 1
100000000000000000000
0.1
1.10
12345678.9
1e15
1.5e300
5e-324
3.0 * 2
5 // 2.0
3.7|int + 1
9007199254740993
170141183460469231731687303715884105727
""".strip("\n").split("\n")

# A line that ends with a backslash inside of a string literal goes on in the next one.
_joined = []
for _line in EXPRESSIONS:
    if _joined and _joined[-1].endswith("\\") and not _joined[-1].endswith("\\\\"):
        _joined[-1] += "\n" + _line
    else:
        _joined.append(_line)
EXPRESSIONS = _joined

STATEMENTS = [
    # whitespace control
    "a\n  {% if true %}\n  b\n  {% endif %}\nc\n",
    "a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc\n",
    "a  {%+ if true +%}\n  b{% endif %}\nc\n\n",
    "  {%+ if true %}x{% endif %}",
    "{% if true %}\n\nx\n{% endif %}\n\n",
    "x  {{- ' a ' -}}  y {{ 1 }}\n",
    "x\n  {# comment #}\ny\n  {#- comment -#}\nz {#+ c +#}\nw",
    "  {# a #}  {# b #}\nx",
    "  {{ 1 }}\n  {% set x = 1 %}  \n  {{ x }}",
    "\t{% set x = 1 %}\t{% set y = 2 %}\n{{ x }}{{ y }}",
    "a\r\nb\rc\n{% if true %}\r\nd{% endif %}\r\n",
    "\u00a0{%- if true %}x{% endif %}\u00a0{%- if true %}y{% endif %}",
    "{% raw %}{{ x }}{% if %}{% endraw %}",
    "a {%- raw -%}  {{ x }}  {%- endraw -%} b",
    "a\n  {% raw %}\n  {{ x }}\n  {% endraw %}\nb",
    "{%raw%}{%endraw +%}\nx",
    "{{ '{{' }}{{ '}}' }}{{ '{%' }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {} }}{{ {'a': {}} }}",
    "{ { } } {x} {%% x", "{", "}}", "{#", "{{", "{%", "a { b", "{{}}", "{% %}",
    "{{ 1 }}\n", "{{ 1 }}\n\n", "\n{{ 1 }}", "",
    # if
    "{% if i > 50 %}a{% elif i > 40 %}b{% else %}c{% endif %}",
    "{% if zero %}a{% elif null %}b{% elif t %}c{% endif %}",
    "{% if not missing %}a{% endif %}",
    "{% if 1, 2 %}a{% endif %}",
    "{% if i: %}a{% endif %}",
    "{% if i %}{% if zero %}x{% else %}y{% endif %}{% endif %}",
    "{% if false %}{{ x|nonesuch }}{% else %}ok{% endif %}",
    "{% if true %}{{ x|nonesuch }}{% endif %}",
    "{% if true %}{{ x is nonesuch }}{% endif %}",
    # for
    "{% for x in xs %}{{ x }},{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in xs %}{% break %}{% else %}none{% endfor %}",
    "{% for x in xs %}{% continue %}{% else %}none{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in xs %}{% if loop.index == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}",
    "{% for x in xs if x > 100 %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in xs if x > missing %}{{ x }}{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }} {% endfor %}",
    "{% for k, v in d|items %}{{ k }}={{ v }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}",
    "{% for c in s %}{{ c }}.{% endfor %}",
    "{% for c in u %}{{ c }}.{% endfor %}",
    "{% for x in missing %}{{ x }}{% else %}none{% endfor %}",
    "{% for x in none %}{{ x }}{% endfor %}",
    "{% for x in 5 %}{{ x }}{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4), 'xy'] %}{{ a }}{{ b }} {% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for a, b in [[1]] %}{{ a }}{% endfor %}",
    "{% for a, b in [1] %}{{ a }}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for m in messages %}{% if loop.previtem and loop.previtem.role == 'user' %}after user {% endif %}{% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}",
    "{% for x in xs %}{% for y in xs %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for x in xs %}{% set outer = loop %}{% for y in xs %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for x in xs %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.nothing }}{{ loop['index'] }}{% endfor %}",
    "{% for x in xs|map('string') %}{{ loop.last }}{{ x }} {% endfor %}",
    "{% for x in xs|map('string') %}{{ loop.length }}{{ x }} {% endfor %}",
    "{% for x in xs|map('string') %}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ x }} {% endfor %}",
    "{% set g = xs|map('string') %}{% for x in g %}{{ x }}{% break %}{% endfor %}{{ g|list }}{{ g|list }}",
    "{% set g = xs|select %}{{ g|list }}{{ g|list }}",
    "{% for n in nested recursive %}[{% if n is iterable %}{{ loop(n) }}{% else %}{{ n }}{% endif %}{{ loop.depth }}]{% endfor %}",
    "{% for n in [[1, [2]], [3]] recursive %}{{ loop.index }}{{ loop(n) if n is sequence }}{% else %}empty{% endfor %}",
    "{% for x in xs %}{{ loop(x) }}{% endfor %}",
    "{% set q = [1, 2, 3] %}{% for x in q %}{{ x }}{% set _ = q.pop() %}{% endfor %}{{ q }}",
    "{% for x in range(3) %}{{ x }}{% endfor %}{{ x }}",
    "{% set x = 9 %}{% for x in range(3) %}{{ x }}{% endfor %}{{ x }}",
    "{% for item in xs %}{{ item }}{{ loop.index }}{% if loop.last %}!{% endif %}{% endfor %}",
    "{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% continue %}{% endif %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}",
    "{% for x in xs %}{% filter upper %}a{% if x == 1 %}{% break %}{% endif %}b{% endfilter %}{% endfor %}",
    "{% for x in xs %}{% set y %}a{% if x == 1 %}{% continue %}{% endif %}b{% endset %}{{ y }}{{ x }}{% endfor %}",
    # set and scopes
    "{% set x = 1 %}{{ x }}", "{% set x, y = 1, 2 %}{{ x }}{{ y }}", "{% set x = 1, 2 %}{{ x }}",
    "{% set (x, y) = (1, 2) %}{{ x }}{{ y }}", "{% set x, y = 1 %}", "{% set 'x' = 1 %}", "{% set x.y.z = 1 %}", "{% set true = 1 %}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set x = 1 %}{% for i in xs %}{% set x = 2 %}{% endfor %}{{ x }}",
    "{% set x = 1 %}{% for i in xs %}{{ x }}{% set x = i %}{{ x }} {% endfor %}{{ x }}",
    "{% for i in xs %}{{ x }}{% set x = i %}{{ x }} {% endfor %}{{ x }}",
    "{% for j in xs %}{% if loop.first %}{% set i = 5 %}{% else %}<{{ i }}>{% endif %}{% endfor %}{{ i }}",
    "{% for j in xs %}{% set i = 5 %}{{ i }}{% endfor %}{{ i }}",
    "{% if false %}{% set i = 5 %}{% endif %}{{ i }}",
    "{% if false %}{% set i = 5 %}{% else %}{% set q = 1 %}{% endif %}{{ i }}{{ q }}",
    "{% if false %}{% set i = 5 %}{% elif false %}{% set i = 6 %}{% else %}{% endif %}{{ i }}",
    "{% if true %}{% set i = 5 %}{% elif false %}{% set i = 6 %}{% else %}{% set i = 7 %}{% endif %}{{ i }}",
    "{% if false %}{% set i = 5 %}{% elif false %}{% set i = 6 %}{% endif %}{{ i }}",
    "{% macro m() %}{% if false %}{% set i = 5 %}{% endif %}{{ i }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% if i is not defined %}{% set i = 5 %}{% endif %}{{ i }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{% if new is not defined %}{% set new = 5 %}{% endif %}{{ new }}{% endmacro %}{{ m() }}{{ new }}",
    "{{ i }}{% set i = 1 %}{{ i }}",
    "{% set i = i + 1 %}{{ i }}",
    "{% set i %}{{ i }}{% endset %}[{{ i }}]",
    "{% set x %}a{{ 1 + 1 }}<b{% endset %}{{ x }}{{ x|length }}",
    "{% set x | upper | replace('A', 'x') %}abc{% endset %}{{ x }}",
    "{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y }}",
    "{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns }}",
    "{% set ns = {} %}{% set ns.a = 1 %}", "{% set nope.a = 1 %}",
    "{% set ns = namespace(l=[]) %}{% for x in xs %}{% set ns.l = ns.l + [x * 2] %}{% endfor %}{{ ns.l }}",
    "{% set ns = namespace(a=1) %}{% set ns.b %}text{% endset %}{{ ns.b }}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}",
    "{% with i = i + 1 %}{{ i }}{% with i = i + 1 %}{{ i }}{% endwith %}{% endwith %}{{ i }}",
    "{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}",
    "{% filter replace('a', 'b')|upper %}aaa{% endfilter %}",
    "{% filter indent(2) %}a\nb\n{% endfilter %}|",
    "{% filter nonesuch %}a{% endfilter %}",
    "{% filter tojson %}a\"b{% endfilter %}",
    "{% print 1, 'a' %}", "{% generation %}{% set q = 1 %}a{{ q }}{% endgeneration %}{{ q }}",
    "{% for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}\n{% endfor %}",
    "{% for m in messages %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    # macros
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c='y') }} {{ m(b=5) }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}",
    "{% macro m(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro m(a) %}{{ a is defined }}{{ a }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}{{ m(1) }}{{ m() }}",
    "{% macro m(a, kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(x) %}{{ caller() }}{{ x }}{% endmacro %}{% call m(1) %}body{% endcall %}",
    "{% macro m() %}{{ caller(5) }}{% endmacro %}{% call(x) m() %}[{{ x }}]{% endcall %}",
    "{% macro m() %}{{ caller(5, y=6) }}{% endmacro %}{% call(x, y, z=7) m() %}[{{ x }}{{ y }}{{ z }}]{% endcall %}",
    "{% macro m() %}x{% endmacro %}{% call m() %}body{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}", "{% macro m(caller) %}{{ caller() }}{% endmacro %}",
    "{% macro fact(n) %}{{ 1 if n < 2 else n * fact(n - 1)|int }}{% endmacro %}{{ fact(10) }}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{% endmacro %}{{ a() }}",
    "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{{ m() }}{{ x }}",
    "{% for x in xs %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}{{ m() }} {% endfor %}",
    "{% for x in xs %}{% if loop.first %}{% macro m() %}{{ x }}{% endmacro %}{% endif %}{{ m() if m is defined }}{% endfor %}",
    "{% if true %}{% macro m() %}in if{% endmacro %}{% endif %}{{ m() }}",
    "{% macro m() %}a{% endmacro %}{{ m }}{{ m is callable }}{{ m() + 'b' }}{{ m()|upper }}",
    "{% macro outer(a) %}{% macro inner(b) %}{{ a }}{{ b }}{% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer('x') }}",
    "{% macro m(a) -%}\n  {{ a }}\n{%- endmacro %}[{{ m(1) }}]",
    "{% macro m(d) %}{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}{% endmacro %}{{ m({'a': 1}) }}{{ m(d) }}",
    "{% macro m(a, a) %}{% endmacro %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m %}{% endmacro %}",
    "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(*[1]) }}{{ m(**{'x': 2}) }}{{ m(x=1, **{'x': 2}) }}",
    "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}",
    "{% macro m(x) %}{% if x %}{{ x }}{{ m(x[1:]) }}{% endif %}{% endmacro %}{{ m('abc') }}",
    # errors of the grammar
    "{% if %}{% endif %}", "{% endif %}", "{% if true %}", "{% for %}{% endfor %}", "{% for x %}{% endfor %}", "{% for x in %}{% endfor %}",
    "{% if true %}{% endfor %}", "{% unknown %}", "{{ 1 2 }}", "{{ (1 }}", "{{ [1 }}", "{{ {1} }}", "{{ 1 + }}", "{{ 'a }}",
    "{{ a. }}", "{{ a.'b' }}", "{{ a[ }}", "{{ a| }}", "{{ a|1 }}", "{{ a is }}", "{{ a is b is c }}", "{{ f(a=1, 2) }}",
    "{{ f(**a, b) }}", "{{ f(a=1, a=2) }}", "{{ f(*a, *b) }}", "{{ 1 if }}", "{{ not }}", "{{ @ }}", "{{ a ? b }}", "{{ a == }}", "{{ == a }}",
    "{{ a and }}", "{% set %}", "{% set x %}", "{% set x = %}", "{% set 1 = 2 %}", "{% macro 1() %}{% endmacro %}", "{% call x %}{% endcall %}",
    "{% break %}", "{% continue %}", "{% for x in xs %}{% endfor %}{% break %}", "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for loop in xs %}{% endfor %}", "{% for x in xs %}{% set loop = 1 %}{% endfor %}", "{% set loop = 1 %}{{ loop }}",
    "{{ x|nonesuch }}", "{{ x is nonesuch }}", "{% raw %}", "{% else %}", "{{ }}", "{{ , }}", "{{ 'a' 1 }}", "{{ 0777 }}", "{{ 1__0 }}", "{{ 0x }}",
    "{{ '\\x4' }}", "{{ '\\u12' }}", "{{ é }}{% set é = 1 %}{{ é }}", "{{ ١ }}", "{{ \"a\\\"b\" }}", "{{ 1 }}}", "{{{ 1 }}}", "{% do xs.append(1) %}",
    "{{ 1;2 }}", "{{ a:b }}", "{{ xs[1,2] }}", "{{ f(,) }}", "{{ f(1,) }}", "{{ [,] }}", "{{ (,) }}", "{{ {,} }}", "{{ {1:} }}", "{{ *a }}",
    "{{ a.1 }}{{ xs.1 }}", "{{ 1.e }}", "{{ 1.5.real }}", "{{ 1..2 }}", "{{ .5 }}", "{{ 5. }}", "{{ 1e }}", "{{ 1e5 }}{{ 1E-2 }}{{ 1.5e+3 }}",
    # line numbers and mixtures
    "{{ 'multi\nline' }}\n{{ \"a\\nb\" }}",
    "{%- for message in messages %}\n    {{- '<|' + message.role + '|>' }}\n    {%- if message.content is not none %}\n        {{- message.content }}\n    {%- endif %}\n{%- endfor %}\n",
    "{%- set ns = namespace(found=false) -%}{%- for m in messages[::-1] if not ns.found -%}{%- if m.role == 'user' -%}{%- set ns.found = true -%}{{ m.content }}{%- endif -%}{%- endfor -%}",
    "{% for m in messages[1:] %}{{ loop.index }}{{ m.role[0]|upper }}{{ m['content'] or '-' }}{{ '\\n' if not loop.last else '' }}{% endfor %}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join('|') }}",
    "{% for g in people|groupby('age') %}{{ g.grouper }}:{% for p in g.list %}{{ p.name }},{% endfor %}{% endfor %}",
    "{% for age, group in people|groupby('age') %}{{ age }}={{ group|length }} {% endfor %}",
    "{% for row in xs|batch(2, '-') %}{{ row|join }}/{% endfor %}",
    "{% set j = joiner(', ') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}",
    "{{ d|tojson|length }}{{ (d|tojson)[0] }}{{ d|tojson + 'x' }}",
    "{% set x = namespace(v=[1, 2]) %}{% set _ = x.v.pop(0) %}{{ x.v }}",
    "{% set x = [1] %}{% set _ = x.append(2) %}",
    "{% set x = {} %}{% set _ = x.update({'a': 1}) %}",
    "{% include 'a' %}", "{% import 'a' as b %}", "{% from 'a' import b %}", "{% extends 'a' %}",
]
