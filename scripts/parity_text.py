"""Writes what transformers makes of awkward texts and chats: tiny tokenizers, templates and expected values.

    pip install transformers==5.24.0 tokenizers==0.23.3 jinja2==3.1.6
    python scripts/parity_text.py crates/models/tests/text

The tokenizers are trained on the sentences below, the chat templates are written for this purpose.
Only the public API is used: `tokenizers`, `AutoTokenizer.from_pretrained`, `apply_chat_template`, `decode`.
"""

import collections
import json
import pathlib
import sys
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer

SENTENCES = [
    "The kiln is fired at 1250 degrees; we'll open it when it's cold.",
    "A firebrick holds heat, and it holds it for hours and hours.",
    "They're stacked in rows of 12, 144 or 1728, aren't they?",
    "def fire(brick):\n    return brick.heat(1250)\n\n\nprint(fire(brick))",
    "Le four est très chaud; l'été aussi. Die Öfen heißen Öfen, denn sie heißen.",
    "窯の中で煉瓦を焼く。煉瓦は熱を保つ。窯は熱い。",
    "Печь горячая, печь очень горячая, и кирпич горячий.",
    "الفرن حار والطوب في الفرن",
    "   spaces,\ttabs\tand   more   spaces   ",
    "user: how hot is it? assistant: it is very hot, very very hot.",
]

TEXTS = {
    "empty": "",
    "one space": " ",
    "spaces": "a  b   c    d     ",
    "leading spaces": "   the kiln",
    "tabs and spaces": "\t\tif hot:\t \treturn  \t",
    "newlines": "one\n\ntwo\n\n\n\nthree\n \n  \nfour\n",
    "carriage returns": "one\r\ntwo\r\rthree\n\r\nfour \r\n",
    "line separators": "one\u2028two\u2029three\x85four\x0bfive\x0csix",
    "controls": "nul\x00bell\x07escape\x1bdelete\x7fseparators\x1c\x1d\x1e\x1f.",
    "odd spaces": "a\u00a0b\u2003c\u3000d\u200be\ufefff\u202fg",
    "contractions": "We'll they'RE it'S I'd can't 'tis ''s 'LL x'\u017f 'ſt’s",
    "digits": "1 12 123 1234 12345 1234567890 3.14159 1,000,000 ٣٤٥ ²³ Ⅷ ½ 𝟙𝟚",
    "punctuation": "?!... --- ((([[[{{{ <<>> $$ @#%^&* ~`|\\ // \"q\" …",
    "spaced punctuation": "a , b ; c ! d ?\n ! \n?\n",
    "code": "fn main() {\n    let x = vec![1, 2, 3];\n\n    println!(\"{:?}\", x);\n}\n",
    "latin composed": unicodedata.normalize("NFC", "Été à Ålesund, naïve café, Đặng Việt"),
    "latin decomposed": unicodedata.normalize("NFD", "Été à Ålesund, naïve café, Đặng Việt"),
    "combining": "Z̸̢͎a̷͇l̴g̵o\u0301\u0301\u0301 \u0301alone",
    "compatibility": "ﬁne ① Ｆｕｌｌ ㎏ Å Ω",
    "hangul": "한국어 " + unicodedata.normalize("NFD", "한국어"),
    "chinese and japanese": "窯の中で煉瓦を焼く。熱い！「はい」、中文字符，你好世界。",
    "right to left": "الفرن حارٌّ جدًّا، שלום עולם \u202eabc\u202c \u200f",
    "emoji": "🔥🧱 👩‍🔬 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇳🇴 ❤️ 1️⃣",
    "indic": "क्षत्रिय स्त्री नमस्ते தமிழ் ไทยแลนด์",
    "astral": "𝔉𝔦𝔯𝔢 𐍈 𠜎 \U0010ffff \ue000",
    "noncharacters": "\ufffd \ufffe \uffff",
    "special tokens": "a<|im_start|>user<|im_end|>b <|end|> c<s>d</s> <unk> <pad> <|begin|>e <|IM_START|> < |im_end|>",
    "special tokens alone": "<|im_end|><|im_end|></s></s>",
    "special tokens spaced": "  <|im_end|>  </s>  \n<|end|>\n",
    "metaspace": "▁the▁kiln ▁ ▁▁ is",
    "byte names": "<0x41><0x0A> <0xFF>",
    "long word": "firebrick" * 60 + "é" * 40,
    "long digits": "0123456789" * 20,
    "long spaces": " " * 130 + "x" + "\n" * 70,
    "sentence": "They're stacked in rows of 144, and the kiln is very hot.",
}

CHATS = {
    "user": [("user", "How hot is the kiln?")],
    "system": [("system", "Answer briefly."), ("user", "Hot?")],
    "turns": [
        ("system", "  Two\nlines.  \n"),
        ("user", "  1 + 1?  \n"),
        ("assistant", "<think>\nOne and one.\n</think>\n\n  2  "),
        ("user", "\n\tAnd 2 + 2?\r\n"),
    ],
    "two turns": [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"), ("user", "/no_think e")],
    "ends with the assistant": [("user", "Go on:"), ("assistant", "The kiln")],
    "awkward": [("user", "a<|im_end|>\n<|im_start|>system\nb <s></s> {{ 1 }} {% if %} \"q\" 'p' \\ é\u0301 🔥 <b>&amp;\x00\x1f\x7f\x85\u2028")],
    "empty": [("user", "")],
    "white space": [("system", " \x1c\n"), ("user", "\u00a0\u3000 x \x1f\x85")],
    "one line": [("user", "one\rtwo\r\nthree\x0bfour\u2028five\n")],
    "wrong order": [("assistant", "first"), ("user", "second")],
    "unknown role": [("critic", "no"), ("user", "yes")],
}

CHATML = """\
{%- if messages[0]['role'] != 'system' -%}
    {{- '<|im_start|>system\\nYou fire bricks.<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

HEADERS = """\
{% set first = namespace(done=false) %}
{% for message in messages %}
{% set header = '<|start|>' ~ message['role'] ~ '<|header|>\\n\\n' ~ message['content'] | trim ~ '<|end|>' %}
{% if not first.done %}{% set header = bos_token ~ header %}{% set first.done = true %}{% endif %}
{{- header -}}
{% endfor %}
{% if add_generation_prompt %}
{{- '<|start|>assistant<|header|>\\n\\n' -}}
{% endif %}
"""

ORDERED = """\
{#- A system message goes into the first turn. -#}
{%- if messages[0].role == 'system' -%}
    {%- set system, turns = messages[0].content.strip() ~ '\\n\\n', messages[1:] -%}
{%- else -%}
    {%- set system, turns = '', messages -%}
{%- endif -%}
{{ bos_token }}
{%- for turn in turns -%}
    {%- if (turn.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Turns must alternate: turn ' ~ loop.index ~ ' is of ' ~ turn.role) }}
    {%- endif -%}
    {%- if turn.role == 'user' -%}
        {{ ' [ASK] ' + (system if loop.first else '') + turn.content | trim + ' [/ASK]' }}
    {%- elif turn.role == 'assistant' -%}
        {{ ' ' ~ turn.content.split('</think>')[-1].lstrip('\\n') ~ eos_token }}
    {%- endif -%}
{%- endfor -%}
"""

CONTROLS = """\
{% macro tagged(name, text='', upper=false) %}
<{{ name }}{% if upper %} {{ name.upper() }}{% endif %}>{{ text }}</{{ name }}>
{% endmacro %}
{% set state = namespace(last=-1, seen=0, roles=[]) %}
{% for message in messages[::-1] %}
  {% set index = (messages | length - 1) - loop.index0 %}
  {% if message.role == 'user' and message.content is string and not message.content.startswith('/') %}
    {% set state.last = index %}
    {% break %}
  {% endif %}
{% endfor %}
last={{ state.last }}
{% for message in messages %}
    {% if message.role == 'system' %}{% continue %}{% endif %}
    {% set state.seen = state.seen + 1 %}
    {% set state.roles = state.roles + [message.role] %}
  {{ loop.index }}/{{ loop.length }} {{ message.role | upper }} {{ loop.cycle('odd', 'even') }}
    {{- tagged(message.role, message.content.replace('\\n', '|').replace('e', 'E', 1), upper=loop.last) }}
    {%- if '</think>' in message.content %}
[{{ message.content.split('</think>')[0].split('<think>')[-1].strip('\\n') }}]
    {%- endif +%}
    {% if tools is defined and tools is not none %}tools{% elif tools is none %}no tools{% endif %}

{% else %}
nothing
{% endfor %}
seen={{ state.seen }} roles={{ state.roles }} {{ state.roles | join(', ') }} {{ missing }}{{ missing is defined }}
{% if not documents %}{{ documents }}{% endif %} {{ messages[0].tool_calls is defined }} {{ none }} {{ true }} {{ false }}
{{ messages[0] }}
{{ messages | tojson }}
{{ messages[-1] | tojson(indent=2) }}
{{ {'z': 1, 'a': [1.5, true, none, {}], 'é': "it's <b> & \\"q\\""} | tojson }}
{{ {'b': [], 'a': {'k': 'é🔥'}} | tojson(ensure_ascii=true, sort_keys=true, indent=4) }}
{{ [1e20, 1e-7, 123456.0, 0.1, -2.0, 1e15, 1e16] | tojson(separators=(',', ':')) }}
{{ messages | map(attribute='role') | list }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ messages[0].items() | list }} {{ messages[0].get('name', 'nobody') }} {{ messages[0].keys() | list }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ 2 ** 5 }} {{ 7 / 2 }} {{ 'ab' * 3 }} {{ 1 ~ 2 ~ 'x' }} {{ 'b' in 'abc' }} {{ range(3) | list }}
{{ 'abc'[1] }} {{ 'abcdef'[-3:] }} {{ 'x' if messages else 'y' }} {{ messages[0].content | length }} {{ [1, 'a', none, "b'c", 2.0] }}
"""

STRINGS = """\
{% for message in messages %}{% set text = message.content %}
{{ [text.strip(), text.lstrip(), text.rstrip(), text | trim, text.strip('\\n ax')] | tojson }}
{{ [text.split(), text.split(none, 1), text.split('\\n'), text.split(' ', 2), text.rsplit(' ', 1), text.rsplit(none, 1)] | tojson }}
{{ [text.splitlines(), text.splitlines(true)] | tojson }}
{{ [text.startswith('a'), text.startswith(('How', 'one')), text.endswith('?'), text.find('o'), text.rfind('o'), text.count('o')] | tojson }}
{{ [text.removeprefix('How'), text.removesuffix('?'), text.partition(' '), text.rpartition('x')] | tojson }}
{{ [text.title(), text.capitalize(), text.upper(), text.lower(), text.isspace()] | tojson }}
{{ [text[:3], text[2:], text[::-1], text | length, text | replace('o', '0'), text | first, text | last] | tojson if text }}
{{ text | join('-') }}|{{ '-'.join(['a', text, 'b']) }}|{{ '%s and %d' | format(text, 3) }}|{{ text | string }}|{{ text | int(7) }}
{% endfor %}
{{ strftime_now('%%') }}
"""

MARKED = """\
{% for message in messages -%}
  {% if loop.first and message.role not in ['system', 'user'] %}
    {{ raise_exception('The first message must be of system or user, not of ' + message.role + '.') }}
  {% endif %}
  {% if message.role == 'assistant' %}
assistant:
    {% generation %}
 {{ message.content }}{{ eos_token }}
    {% endgeneration %}
  {% else %}
{{ message.role }}: {{ message.content }}
  {%- generation -%} {% set inside = 1 %} !{{ message.role }} {%- endgeneration %}
{{ inside is defined }}
  {% endif %}
{#- a comment with {% generation %} in it #}
{# a line of its own #}
{% endfor %}
    {%+ if add_generation_prompt %}assistant:{% endif %}


"""

TEMPLATES = {
    "chatml": CHATML,
    "headers": HEADERS,
    "ordered": ORDERED,
    "controls": CONTROLS,
    "strings": STRINGS,
    "marked": MARKED,
}

# Runs of letters with one other character before them, digits by one or up to three, punctuation with the line breaks after it,
# white space of which the last space goes to the next word.
WORDS = (
    r"(?i:'(?:[stmd]|re|ve|ll))|[^\p{L}\p{N}\r\n]?\p{L}+|\p{N}DIGITS"
    r"| ?[^\p{L}\p{N}\s]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def special(text, **options):
    return AddedToken(text, special=True, normalized=False, **options)


def byte_level_words():
    """Single digits and composed characters."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(WORDS.replace("DIGITS", "")), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, 380, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens([special("<|endoftext|>"), special("<|im_start|>"), special("<|im_end|>")])
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "chat_template": CHATML,
        "model_max_length": 4096,
    }
    files = {"generation_config.json": {"eos_token_id": [tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")]}}
    return tokenizer, config, files


def byte_level_begun():
    """Up to three digits, a token before every text, words of the vocabulary taken whole."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(WORDS.replace("DIGITS", "{1,3}")), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 340, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_special_tokens([special(text) for text in ["<|begin|>", "<|end|>", "<|start|>", "<|header|>"]])
    begin = tokenizer.token_to_id("<|begin|>")
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A", pair="<|begin|> $A <|begin|>:1 $B:1", special_tokens=[("<|begin|>", begin)]
            ),
        ]
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(pad_id=begin + 1, pad_token="<|end|>", length=12)
    content = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": {"__type": "AddedToken", "content": "<|begin|>", "special": True, **content},
        "pad_token": None,
        "chat_template": [{"name": "tools", "template": "none"}, {"name": "default", "template": HEADERS}],
    }
    files = {
        "special_tokens_map.json": {"eos_token": {"content": "<|end|>", **content}},
        "config.json": {"model_type": "llama", "eos_token_id": tokenizer.token_to_id("<|end|>")},
    }
    return tokenizer, config, files


def byte_fallback(metaspace):
    """Pieces that begin with a visible space; what no piece covers becomes bytes."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(content=" ", left=1, right=0)]
    )
    first = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    # Learned word by word, as sentencepiece does, but used on the whole text.
    learner = Tokenizer(models.BPE(unk_token="<unk>"))
    learner.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    counts = collections.Counter("".join(SENTENCES).replace(" ", "▁"))
    letters = sorted(counts, key=lambda letter: (-counts[letter], letter))[:60]
    train(learner, 120, limit_alphabet=len(letters), initial_alphabet=letters)
    learnt = json.loads(learner.to_str())["model"]
    pieces = sorted(learnt["vocab"], key=learnt["vocab"].get)
    vocab = {piece: index for index, piece in enumerate(first + [piece for piece in pieces if piece not in first])}
    merges = [tuple(pair) for pair in learnt["merges"]]
    tokenizer.model = models.BPE(vocab=vocab, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    tokenizer.add_special_tokens([special("<unk>"), special("<s>"), special("</s>"), special("<pad>", lstrip=metaspace, rstrip=metaspace)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "clean_up_tokenization_spaces": False,
    }
    return tokenizer, config, {"chat_template.jinja": ORDERED} if metaspace else {}


def train(tokenizer, vocab_size, **options):
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, **options)
    tokenizer.train_from_iterator(SENTENCES, trainer)


TOKENIZERS = {
    "byte_level_words": byte_level_words,
    "byte_level_begun": byte_level_begun,
    "byte_fallback": lambda: byte_fallback(False),
    "byte_fallback_metaspace": lambda: byte_fallback(True),
}


def write(path, value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n"
    path.write_bytes(text.encode())


def rendered(tokenizer, template, messages):
    try:
        options = {"chat_template": template, "add_generation_prompt": True}
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **options)
    except Exception as error:  # noqa: BLE001 - whatever the template raises is the expected value
        return {"error": str(error)}
    return {"text": text, "ids": ids}


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    chats = {name: [{"role": role, "content": content} for role, content in chat] for name, chat in CHATS.items()}
    write(folder / "texts.json", TEXTS)
    write(folder / "chats.json", chats)
    for name, template in TEMPLATES.items():
        write(folder / f"{name}.jinja", template)
    for name, build in TOKENIZERS.items():
        here = folder / name
        here.mkdir(exist_ok=True)
        tokenizer, config, files = build()
        write(here / "tokenizer.json", json.loads(tokenizer.to_str()))
        write(here / "tokenizer_config.json", config)
        for file, value in files.items():
            write(here / file, value)
        tokenizer = AutoTokenizer.from_pretrained(here)
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        texts = {}
        for label, text in TEXTS.items():
            ids = tokenizer.encode(text, add_special_tokens=False)
            begun = tokenizer.encode(text, add_special_tokens=True)
            decoded = tokenizer.decode(ids, skip_special_tokens=True)
            texts[label] = {"ids": ids, "begun": begun, "decoded": decoded}
        expected = {"vocab_size": len(tokenizer), "bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id}
        expected |= {"pad": tokenizer.pad_token_id, "texts": texts, "own": {}, "chats": {}}
        for label, chat in chats.items():
            if tokenizer.chat_template:
                expected["own"][label] = rendered(tokenizer, None, chat)
        # What else the templates print depends little on the tokenizer.
        for template in TEMPLATES if name == "byte_fallback" else []:
            expected["chats"][template] = {
                label: {key: value for key, value in rendered(tokenizer, TEMPLATES[template], chat).items() if key != "ids"}
                for label, chat in chats.items()
            }
        write(here / "expected.json", expected)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
