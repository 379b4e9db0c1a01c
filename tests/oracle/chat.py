"""What transformers renders for the constructs of chat templates, and for real templates with tools.
Writes tests/golden/chat.jsonl:  python tests/oracle/chat.py [SHARED] > tests/golden/chat.jsonl
A line: template (or file, in SHARED/data/chat-templates), messages, tools, variables; and output with spans (characters), or error."""
import datetime
import json
import os
import sys

from transformers.utils import chat_template_utils as utils


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 1, 2, 15, 4, 5)


utils.datetime = Clock
MESSAGES = [{"role": "system", "content": " Be terse. "}, {"role": "user", "content": "Hé 你好 😀?"},
            {"role": "assistant", "content": "line 1\nline 2"}, {"role": "user", "content": "<b>&'\"\\"}]
VARIABLES = {"bos_token": "<s>", "eos_token": "</s>", "x": {"a": 1, "b": [1, 2.5, None, True, "s"], "c": {"d": "e"}, "items": 3},
             "words": ["pear", "Apple", "fig", "apple"], "n": 7, "nothing": None, "empty": "", "text": "  Hello,\tWorld\u00a0\n",
             "rows": [{"name": "b", "age": 3, "tags": ["u", "v"]}, {"name": "a", "age": 1}, {"name": "C", "age": 2, "on": True}]}

EXPRESSIONS = r"""
1 + 2 * 3 - 4 // 3 | 7 % -3 | -7 % 3 | -7 // 2 | 2 ** 10 | 2 ** -1 | 7 / 2 | 1e3 | 1.5e-7 | 1e16 | 123456789.125 | 0.1 + 0.2 | 1_000 | 0x1F
-2 ** 2 | 2 ** 3 ** 2 | not true | not not 1 | 1 if n > 5 else 2 | 'a' if false | (1, 2, 3) | (1,) | () | [1, [2, 'x']] | {'a': 1, 'b': none}
true and 'x' | '' or 'y' | 0 or none | 1 < 2 < 3 | 1 < 2 > 3 | 1 == 1.0 | true == 1 | 'a' < 'b' | [1, 2] < [1, 3] | (1, 2) == [1, 2] | none == none
'b' in x | 'z' not in x | 'll' in text | 2.5 in x.b | 3 in (1, 2) | 'a' ~ 1 ~ none ~ true ~ 2.0 | 'a' 'b' "c" | 'ab' * 3 | [1] * 2 + [3] | 10 - - 3
'\n\t\\\'\"\x41\u00e9\U0001F600\101' | 'a\qb' | "it's" | ['it\'s', "q\"", 'a\nb', 'é\u200b\x7f'] | 1.0 | 100000.0 | 1e15 | 1e-4 | 0.00001 | -0.0 | 1e22 | 12345678901234567.0
x.a | x['a'] | x.c.d | x.missing | x.missing is defined | x['items'] | x.get('zz', 5) | x.get('zz') | x.keys() | x.values() | x.items() | x | x.b[0] | x.b[-1] | x.b[9]
text[2] | text[2:7] | text[::-1] | text[-3:] | text[:-3:2] | x.b[1:3] | x.b[::2] | x.b[::-1] | x.b[10:] | 'é你😀a'[1] | 'é你😀a'[1:3] | 'é你😀a'[::-2] | 'é你😀a'|length
text.strip() | text.lstrip() | text.rstrip() | 'xxaxx'.strip('x') | 'abcab'.lstrip('ab') | 'a,b,,c'.split(',') | ' a  b c '.split() | 'a b c'.split(' ', 1) | 'a b c'.rsplit(' ', 1) | ' a  b '.split(none, 1)
'abc'.startswith('ab') | 'abc'.endswith(('x', 'bc')) | 'abc'.upper() | 'ÀB'.lower() | 'hello world'.title() | 'straße'.upper() | 'hELLO'.capitalize() | 'aXbXc'.replace('X', '--') | 'aaa'.replace('a', 'b', 2) | 'ab'.replace('', '.')
'abcabc'.find('c') | 'abcabc'.rfind('c') | 'abc'.find('z') | 'é你b'.index('b') | 'abcab'.count('ab') | '-'.join(['a', 'b']) | 'k=v=w'.partition('=') | 'k=v=w'.rpartition('=') | 'a\nb\r\nc'.splitlines() | '7'.zfill(3) | 'a'.ljust(3) ~ '|' | 'a'.center(4, '*')
'12'.isdigit() | ''.isdigit() | 'ab1'.isalnum() | 'Ab'.isupper() | 'AB'.isupper() | 'ab'.islower() | ' \n'.isspace() | 'prefix-x'.removeprefix('prefix-') | 'x.txt'.removesuffix('.txt') | 'ΟΔΟΣ'.lower()
'%s is %d or %.2f%%' % ('a', 3, 2.5) | '%5d|%-5s|%05d|%x' % (3, 'a', 42, 255) | '{} {1}'.format(1, 2) if false else 'k' | '{} and {}'.format('a', 2) | '{0:>5}|{x:.2f}|{1!r}'.format('a', 'b', x=1.5) | '%r' % ('a',) | '%(k)s' % {'k': 1}
text|trim | words|join(', ') | words|first | words|last | words|length | words|sort | words|sort(reverse=true) | words|sort(case_sensitive=true) | words|unique|list | words|map('upper')|join(' ') | words|reverse|list | 'abc'|reverse
rows|map(attribute='name')|list | rows|map(attribute='on', default='no')|list | rows|selectattr('on')|list|length | rows|selectattr('age', 'gt', 1)|map(attribute='name')|join | rows|rejectattr('age', 'equalto', 1)|map(attribute='age')|list | rows|sort(attribute='age')|map(attribute='name')|join(',') | rows|sum(attribute='age') | rows|map(attribute='tags.0')|list
[1, 2, 3, 4]|select('even')|list | [1, 2, 3]|reject('odd')|list | [0, 1, '', 'a']|select|list | [3, 1, 2]|min | [3, 1, 2]|max | words|min | []|first is defined | [1, 2, 3, 4, 5]|batch(2, 0)|list | [1, 2, 3, 4, 5]|slice(2)|list | rows|groupby('age')|map('first')|list
missing|default('d') | ''|default('d') | ''|default('d', true) | none|default('d') | missing is defined | missing is none | nothing is none | n is number | true is number | 'a' is string | x is mapping | x.b is iterable | x.b is sequence | n is iterable | 1 is odd | n is divisibleby 7 | n is divisibleby(2)
true is true | 1 is true | false is false | true is boolean | 1 is integer | 1.0 is float | x is sameas x | none is sameas none | 1 is equalto 1.0 | n is eq 7 | n is not eq(7) | 3 is in [1, 3] | 'a' is lower | 'A' is upper | 'trim' is filter | 'odd' is test | missing is undefined | x.get is callable
x|tojson | x|tojson(indent=2) | 'é\n"<>'|tojson | 'é😀'|tojson(ensure_ascii=true) | {'b': 1, 'a': [1.0, 1e100, true, none]}|tojson(sort_keys=true) | []|tojson(indent=2) | {}|tojson | (1, 2)|tojson | {1: 2, none: 3, true: 4}|tojson | [1,2]|tojson(separators=(',', ':')) | messages|tojson
'42'|int | '4.7'|int | 'x'|int | 'x'|int(5) | '0x1f'|int(0, 16) | 3.9|int | '1.5'|float | 'z'|float(2.5) | 42.55|round | 42.55|round(1, 'floor') | 2.5|round | 7|round | 1.234|round(2) | -3|abs | -3.5|abs | 12|string ~ '!' | 'abc'|list | x|list | x|items|list
'a\nb\n\nc'|indent | 'a\nb'|indent(2, true) | 'a\n\nb'|indent('> ', blank=true) | 'hello'|capitalize | 'hello big-world (x)'|title | 'Hi'|upper | 'aab'|replace('a', 'x', 1) | x|dictsort | {'B': 2, 'a': 1}|dictsort | {'B': 1, 'a': 2}|dictsort(by='value', reverse=true) | words|join | 'foo bar baz'|truncate(5) | 'a b'|e
'<x>'|safe + '<y>' | '<x>' + ('<y>'|safe) | '<x>'|safe ~ '<y>' | '<a>'|escape|trim | range(5)|list | range(2, 8, 3)|list | range(5, 0, -2)|list | range(3) | dict(a=1, b=2) | namespace(a=1).a | strftime_now('%Y-%m-%d %H:%M') | strftime_now('%d %b %Y, %A %j')
1 in {1: 2} | {'a': 1}['a'] | {'a': {'b': 2}}.a.b | [[1, 2], [3]][0][1] | ('a', 'b')[1] | 'abc'.1 | x.b.0 | (1 + 2) * 3 | not 1 == 2 | 1 == 1 and 2 == 2 or false | [x for_ in y] if false else 1
5 is not none and 'x' | 'a' in 'abc' and 'z' not in 'abc' | (n > 3) ~ '' | n|string|length | [1, 2, 3]|last + 1 | -n | +n | - n|abs | 'a' if n == 7 else 'b' if n == 8 else 'c' | words[n - 6]|upper | not x.zz | 3 if x.zz else 4
range(5, 0, -2) | range(3, 3) | range(6)[::4] | range(3)[1:] | range(9)[7:2:-2] | 2.5 is odd | -1.5 is odd | 3.0 is odd | -3 is odd | 4.0 is even | 2.5 is divisibleby 2
'one two_2, drei'|wordcount | text|wordcount | ''|wordcount | 'a b/c?ü&='|urlencode | {'a b': 1, 'c': 'd&/e'}|urlencode | [('k', none)]|urlencode | 3.5|urlencode | '<a>'|safe|forceescape | '<a>'|forceescape
'Straße İ'.casefold() | 'A Bc D'.istitle() | 'A bc'.istitle() | '12'.istitle() | 'a\tbc\n\td'.expandtabs() | 'a\tb'.expandtabs(3) | 'a\tb'.expandtabs(0) | 'a\u200b'.isprintable() | ''.isprintable()
rows|groupby('u', default=3)|map(attribute='grouper')|list | rows|groupby('age')|map(attribute='list')|list | (rows|groupby('age'))[0].grouper | (rows|groupby('age'))[0]['list'] | (rows|groupby('age'))[0].0 | (rows|groupby('age'))[0].zz is defined
rows|groupby('name')|map(attribute='list.0.age')|list | (rows|groupby('age'))[0] | rows|groupby('age')|map('length')|list | (rows|groupby('age'))[0] is sequence | (rows|groupby('age'))[0] == (1, [rows[1]]) | (rows|groupby('age'))[0] + (1,) | (rows|groupby('age'))[0]|tojson
((rows|groupby('age'))[0] + (1,)).grouper is defined | (rows|groupby('age'))[0][:1] | (rows|groupby('age'))[0][:2].grouper is defined | rows|groupby('age')|sort(reverse=true)|map(attribute='grouper')|list | words|groupby('0', default=none)|map('first')|list | (rows|groupby('age'))[0] in [(1, [rows[1]])]
words|groupby(0, default=none)|map(attribute='grouper')|join(',') | words|groupby(0)|map(attribute='list')|list | {(1, 2): 3}[(rows|groupby('age'))[0][:1] + (2,)] | '%s %s' % (rows|groupby('age'))[0] | (rows|groupby('age'))[0].count(1) | (rows|groupby('age'))[0] ~ ''
rows|groupby('age', none)|map(attribute=0)|list | rows|groupby('age', default=none)|map(attribute=0)|list
rows|groupby('on', default=false)|list|length | rows|groupby('on', default=false)|map('first')|list | 7|truncate(9) | [1, 2]|truncate(9) | missing|truncate | none|truncate(3)
"""

STATEMENTS = [
    "{{ words[0] }}{% if n|string is string %}{% endif %}{% if 'a' ~ n == 'a7' %}{% endif %}",
    "{% for m in messages %}{{ loop.index }}/{{ loop.length }} {{ loop.first }} {{ loop.last }} {{ m.role }}\n{% endfor %}",
    "{%- for m in messages -%}\n  {{ m['role'] }} {{- ' x ' -}}\n {%- if not loop.last %},{% endif %}\n{%- endfor -%}  end",
    "{% for a in [] %}x{% else %}none{% endfor %}|{% for a in [1] %}x{% else %}none{% endfor %}|{% for a in [1,2] %}{% break %}{% else %}e{% endfor %}",
    "{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for r in rows if r.age > 1 %}{{ loop.index }}{{ r.name }}{{ loop.revindex }}{{ loop.revindex0 }}{% endfor %}",
    "{% set ns = namespace(stop=false) %}{% for i in range(9) if not ns.stop %}{{ i }}{% if i == 2 %}{% set ns.stop = true %}{% endif %}{% endfor %}",
    "{% for k, v in x.items() %}{{ k }}={{ v }};{% endfor %}{% for k in x %}{{ k }}{% endfor %}{% for c in 'é😀' %}[{{ c }}]{% endfor %}",
    "{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% for i in [1,2,3] %}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.changed(i // 2) }} {% endfor %}",
    "{% for i in [1,[2,[3]],4] recursive %}{% if i is iterable %}<{{ loop(i) }}>{% else %}{{ i }}:{{ loop.depth }}{% endif %}{% endfor %}",
    "{% set v = 1 %}{% for i in [1,2] %}{{ v }}{% set v = v + i %}{{ v }},{% endfor %}{{ v }}",
    "{% set v = 1 %}{% if true %}{% set v = 2 %}{% endif %}{{ v }}{% with v = 3, w = v %}{{ v }}{{ w }}{% endwith %}{{ v }}{{ w is defined }}",
    "{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.s = ns.s + m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.s }}",
    "{% set t %}  a {{ n }}\n{% endset %}[{{ t }}]{% set u | trim | upper %} b {% endset %}[{{ u }}]{% filter upper | replace('A', 'x') %}aA{{ n }}{% endfilter %}",
    "{% macro f(a, b=2, c=a) %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(1, c=5) }}{{ f() }}{{ f(b=1, a=0)|length }}",
    "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, k=4) }}{{ f(*[1, 2], **{'z': 1}) }}",
    "{% macro box(t) %}<{{ t }}>{{ caller(1) }}</{{ t }}>{% endmacro %}{% call(i) box('p') %}in {{ i }}{{ n }}{% endcall %}",
    "{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}",
    "{% macro a() %}{{ v }}{% endmacro %}{% set v = 1 %}{{ a() }}{% for v in [2] %}{{ a() }}{% endfor %}{% for i in [1] %}{% macro b() %}{{ i }}{% endmacro %}{{ b() }}{% endfor %}",
    "{% raw %} {{ not }} {% if %} {% endraw %}|{%- raw -%} x {%- endraw -%} |{# comment {{ }} #}{#- c -#} a {#+ d +#} b",
    "  {% if true %}\n  a\n  {% endif %}\n  b {% if true %} c {% endif %}\nd\n",
    "  {%+ if true %}x\n{%+ endif %}\n\t{% set a = 1 +%}\n y\n\n\n{{ a }}\n\n",
    "a\r\nb\rc {% if true -%}\r\n  d{% endif %}\r\n",
    "{% if n == 1 %}1{% elif n == 7 %}7{% elif n == 7 %}8{% else %}9{% endif %}{% if false %}{% elif false %}{% else %}{% if true %}in{% endif %}out{% endif %}",
    "{% generation %}abc{% endgeneration %}",
    "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}{% generation %}{{ m.content }}é{% endgeneration %}{% else %}{{ m.content }}{% endif %}\n{% endfor %}",
    "{% for m in messages %}{%- generation -%} {{ m.content }} {% set q = 1 %} {%- endgeneration -%}{{ q is defined }}{% endfor %}",
    "{{ {'a': [1, {'b': (1, 2)}]} }}{{ [] }}{{ {} }}{{ ns is defined }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}",
    "{% set x = {'if': 1} %}{{ x['if'] }}{{ x.if }}{% set is_x = 1 %}{{ is_x }}{{ loop is defined }}{{ '}}' }}{{ '%}' }}{{ {'a': {'b': 1}}['a']}}",
    "{% print n %}{% for m in messages[1:] %}{% if loop.index0 % 2 == 0 %}{{ m.role }}{% endif %}{% endfor %}{{ messages[-1]['content'] }}{{ messages|length - 1 }}",
    "{{ messages[0].content.items }}{{ messages[0].thinking is defined }}{% set g = rows|map(attribute='name') %}{{ g|list }}{{ g|list }}",
    "{% for age, group in rows|groupby('age') %}{{ age }}:{{ group|length }} {% endfor %}{% for g in rows|groupby('age') %}{{ g.grouper }}={{ g.list[0].name }} {% endfor %}",
    "{% for i in range(3) %}{% for j in range(2) %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }};{% endfor %}",
]

ERRORS = [
    "{{ raise_exception('no ' ~ n) }}", "{{ missing.x }}", "{{ missing + 1 }}", "{{ x.zz.y }}", "{{ x.b[9].y }}", "{{ 1 + 'a' }}", "{{ 'a' + 1 }}", "{{ none + 'a' }}",
    "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ [1] < 'a' }}", "{{ 1 in 2 }}", "{{ 1 in 'a' }}", "{{ n() }}", "{{ missing() }}", "{{ x.b.append(1) }}",
    "{% set y = x.pop('a') %}{{ y.z }}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a in n %}{% endfor %}", "{% if %}{% endif %}",
    "{% if true %}", "{% endif %}", "{% for %}", "{{ ", "{% set %}", "{% foo %}", "{{ 'abc }}", "{{ (1 }}", "{{ 1 ) }}", "{# x", "{{ a b }}", "{{ 1 is }}", "{{ x|nofilter }}",
    "{{ x is notest }}", "{{ range(200000) }}", "{{ range(1, 2, 0) }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(b=2) }}",
    "{% set x.y = 1 %}", "{% set ns = namespace() %}{% set ns._a = 1 %}", "{{ {[1]: 2} }}", "{{ rows|sort }}", "{{ missing|tojson }}", "{{ rows|groupby('on', default=none)|list }}", "{{ rows|groupby('on')|list }}", "{{ x[1:'a'] }}", "{{ 'a'[::0] }}",
    "{{ x|int }}{{ missing|int }}", "{% break %}", "{{ 'a' 1 }}", "{% set true = 1 %}", "{{ rows|map(attribute='name')|length }}", "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}", "{{ 'a'.split('') }}",
    "{% macro f(k) %}{{ f(k + 1) }}{% endmacro %}{{ f(1) }}", "{{ '\\u12' }}", "{% include 'a' %}", "{{ x.b.index(77) }}", "{{ -'a' }}", "{{ loop.index }}",
]

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a place.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "The city"}, "unit": {"type": "string", "enum": ["c", "f"]},
                                     "days": {"type": "integer", "minimum": 1}, "tags": {"type": "array", "items": {"type": "string"}},
                                     "area": {"type": "object", "properties": {"lat": {"type": "number"}}}},
    "required": ["city"]}}}]
TOOL_MESSAGES = [{"role": "system", "content": "Use tools."}, {"role": "user", "content": "Weather in Paris?"},
                 {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type": "function", "function": {
                     "name": "get_weather", "arguments": {"city": "Paris", "days": 2}}}]},
                 {"role": "tool", "tool_call_id": "abcdefghi", "name": "get_weather", "content": "{\"t\": 21.5}"},
                 {"role": "assistant", "content": "<think>\nhm\n</think>\n\nSunny."}, {"role": "user", "content": "Thanks"}]
REASONING = [{"role": "user", "content": "1+1?"}, {"role": "assistant", "reasoning": "easy", "content": "2"}, {"role": "user", "content": "2+2?"},
             {"role": "assistant", "content": "<think>\nfour\n</think>\n\n4"}]


def render(case, template, messages, variables, tools=None, prompt=False):
    """Adds what transformers makes of it and prints the line."""
    try:
        texts, spans = utils.render_jinja_template([messages], tools=tools, chat_template=template, return_assistant_tokens_mask=True,
                                                   add_generation_prompt=prompt, **variables)
        case["output"] = texts[0]
        if spans[0]:
            case["spans"] = spans[0]
    except Exception as e:
        case["error"] = str(e).split("\n")[0][:120]
    print(json.dumps(case, ensure_ascii=False, separators=(",", ":")))


def main():
    shared = sys.argv[1] if len(sys.argv) > 1 else "../shared"
    print(json.dumps({"messages": MESSAGES, "variables": VARIABLES}, ensure_ascii=False, separators=(",", ":")))
    for line in EXPRESSIONS.strip().split("\n"):
        for e in line.split(" | "):
            t = "{{ " + e + " }}"
            render({"template": t}, t, MESSAGES, VARIABLES)
    for t in STATEMENTS + ERRORS:
        render({"template": t}, t, MESSAGES, VARIABLES)
    folder = shared + "/data/chat-templates"
    for name in sorted(os.listdir(folder)):
        for messages, tools in ((TOOL_MESSAGES, TOOLS), (REASONING, None), (TOOL_MESSAGES[:2], TOOLS)):
            variables = {"bos_token": "<s>", "eos_token": "</s>"}
            case = {"file": name, "messages": messages, "tools": tools, "variables": variables, "add_generation_prompt": True}
            with open(folder + "/" + name, encoding="utf-8", newline="") as f:
                render(case, f.read(), messages, variables, tools, True)


main()
