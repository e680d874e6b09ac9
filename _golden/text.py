"""Tokens of Hugging Face's tokenizers library: a byte-level BPE and a WordPiece vocabulary, trained here on text written for it, and what they
make of texts chosen to be hard."""

import gzip
import json
import os

import tokenizers
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from golden import REPOSITORY

CORPUS = [
    "The keeper of the lighthouse didn't sleep much. He'd climb the stairs at dusk, all 199 of them, and he'd light the lamp before the ships came.",
    "\"You're late,\" said the clock, though it couldn't speak; \"I've waited, they've waited, we'll all wait again.\" It's what clocks say, isn't it?",
    "In 1987 the old lamp was replaced. The new lamp burned 3.5 times brighter, used 40% less oil, and cost $1,250.00: a bargain!",
    "func main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt.Println(\"lamp\", i)   // three spaces\n\t}\n}\n",
    "Die Lampe brennt. Der Wärter schläft nicht; er hört die Wellen, und er zählt die Schiffe: fünf, sechs, sieben.",
    "Le gardien n'a pas dormi. La lumière était allumée, et la mer était calme comme un miroir, à l'aube déjà.",
    "Смотритель маяка зажёг лампу. Корабли шли один за другим, и море было спокойно.",
    "灯塔的守护人点亮了灯。船一艘接一艘地来了，海面很平静。灯塔的灯亮了一夜。",
    "灯台守はランプに火をともした。船が次々とやって来た。",
    "등대지기는 등불을 켰다. 배들이 하나씩 지나갔다.",
    "The lamp 💡 the ship 🚢 the wave 🌊 the keeper 👨‍✈️ and the light ✨✨✨ the lamp 💡 the ship 🚢",
    "the lamp was lit and the lamp was put out and the lamp was lit again and the ships were gone and the keeper slept at dawn",
    "unlit, relit, lighting, lighted, lights, lighter, lightest; keeper, keepers, keeping, kept; sleeping, sleeper, asleep, slept",
]

TEXTS = [
    "", " ", "  ", "\n", "\n\n", " \n ", "\t", "a", " a", "a ", "  a", "a  b", "a   b  ", "\r\n", "x\r\ny", "The lamp was lit.", "the lighthouse keeper",
    "I'm you're he's we've they'll she'd isn't 'tis I'M YOU'RE", "'s 't 're 've 'm 'll 'd 'x ' '' 'sat 'redo", " 's  're", "it''s", "don't 123's",
    "1234567890 3.14159 1,000,000 ²³ ½ Ⅷ ٣٤٥ १२३", "a1b2c3", "x²y", "100%", "$5.00", "#hash @at a_b a-b a+b=c", "...!!!???", "(parens) [brackets] {braces}",
    "naïve café Straße İstanbul ŁÓDŹ Ångström", "nai\u0308ve cafe\u0301", "ﬁ ﬂ Ǆ ß ẞ", "ΑΒΓ Σίσυφος ΣΊΣΥΦΟΣ", "Привет, мир! Ёлка", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "สวัสดี",
    "灯塔的灯亮了", "灯塔abc灯", "日本語のテキスト。", "カタカナ ひらがな", "한국어 텍스트", "㐀䶿一鿿豈﫿", "𠀀𪛖𫜀",
    "💡", "🚢🌊", "lamp💡ship", "👨‍✈️ 👩‍👩‍👧 🇩🇪 ☂️ ✨", "e🌊e 🌊",
    "zero\u200bwidth\u200djoin\ufeffbom soft\u00adhyphen", "a\u00a0b\u2003c\u3000d\u2028e\u0085f", "nul\x00bell\x07esc\x1b[0m del\x7f us\x1f", "a\x0bb\x0cc", "\ufffd replacement", "\ue000 private",
    "   leading", "trailing   ", "mid   dle\t\ttabs\n\n\nlines", "tab\tand space \t mix", " \u00a0 x", "\u3000\u3000x",
    "<|endoftext|>", "a<|endoftext|>b <|endoftext|> c", "<|endoftext|><|endoftext|>", "<|endoftext", "<|pad|><|pad|>>",
    "[CLS] a [SEP]", "[MASK]ed", "x[UNK]y", "[mask]", "the [MASK] was lit", "[[MASK]]", "##lit lit##", "a" * 99, "a" * 100, "a" * 101, "ab " * 30, "the" * 60, "lamp" * 40, "!" * 50, "é" * 101,
    "func main() {\n\tfmt.Println(\"hi\")\n}", "https://example.org/a?b=c&d=%20#e", "C:\\path\\file.txt", "user@example.org", "\"quoted\" 'single' “curly” ‘curly’ «angle»", "em—dash en–dash … ellipsis",
    "snake_case camelCase PascalCase SCREAMING_CASE kebab-case", "a.b.c", "x=1;y=2", "¡Hola! ¿Qué?", "≤≥≠±×÷√∞", "^_^ ~tilde~ `tick` |pipe|", "µ ª º", "Ⅻ ⅻ ①", "a\u0301\u0301\u0301", "\u0301a", "ｆｕｌｌｗｉｄｔｈ １２３",
] + CORPUS


def bpe():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|pad|>", "<|pad|>>"]
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=560, min_frequency=2, special_tokens=special, show_progress=False,
                                                      initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def wordpiece(**options):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(**options)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece(cleanup=False)
    return t


def main():
    b = bpe()
    model = json.loads(b.to_str())
    w = wordpiece(lowercase=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    w.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=420, special_tokens=special, show_progress=False))
    vocab = sorted(w.get_vocab(), key=w.get_vocab().get)
    kinds = {}
    for name, options in (("uncased", {"lowercase": True}), ("cased", {"lowercase": False}), ("accents", {"lowercase": True, "strip_accents": False}),
                          ("stripcased", {"lowercase": False, "strip_accents": True}), ("nochinese", {"lowercase": True, "handle_chinese_chars": False})):
        t = wordpiece(**options)
        t.model = models.WordPiece(vocab=w.get_vocab(), unk_token="[UNK]", max_input_chars_per_word=100)
        t.add_special_tokens([AddedToken(s, normalized=False) for s in special])
        kinds[name] = [t.encode(s).ids for s in TEXTS]
    decoded = [w.decode(ids, skip_special_tokens=False) for ids in kinds["uncased"]]
    out = {"script": "_golden/text.py", "tokenizers": tokenizers.__version__, "corpus": CORPUS, "texts": TEXTS, "tokenizer_json": b.to_str(),
           "bpe": [b.encode(s).ids for s in TEXTS], "merges": len(model["model"]["merges"]), "wordpiece_vocab": vocab, "wordpiece": kinds, "wordpiece_decoded": decoded}
    path = os.path.join(REPOSITORY, "data/text/testdata/tokens.json.gz")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f, gzip.GzipFile(filename="", fileobj=f, mode="wb", compresslevel=9, mtime=0) as z:
        z.write(json.dumps(out, separators=(",", ":")).encode())
    print(path, os.path.getsize(path), out["merges"], len(vocab))


main()
