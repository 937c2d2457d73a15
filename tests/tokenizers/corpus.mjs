// Texts that tokenizers get wrong, as byte arrays: hand-picked ones, and random mixtures from a fixed seed.

const bytes = (...values) => Buffer.from(values);

const HAND_PICKED = [
  '', ' ', '  ', '   ', '\t', '\n', '\r\n', '\n\n', '\n\n\n\n \n', ' \n', '\t\n  x', 'a\u0085b', 'a\u00a0b', '\u3000全角',
  'Hello', ' Hello', '  Hello', '   Hello   ', 'Hello world', 'Hello, world!  How are you?',
  "I'm you're he'll we've I'd it's DON'T'S 'S 'LL '\u017f'RE", "'tis ''tis '", "o'clock rock'n'roll l'été",
  '0 1 12 123 1234 12345 123456 3.14159 1,000,000 ½ ² ⅷ ٣٤٥ १२३४', 'w048 7tuijk dsdfhu', '....1234567 ---- ==== !!!??',
  'HTTPServer camelCase snake_case SCREAMING_CASE kebab-case Ünïcödé ÉCOLE éCOLE ǅungla',
  'int main(int argc, char** argv) {\n\treturn argv[0][1] == \'\\n\' ? 0 : -1;  // done\n}\n',
  'def f(x):\n    if x > 0:\n        return {"a": [1, 2, 3]}\n\n\n    return None\n',
  '<div class="a b">\r\n  <p>&nbsp;</p>\r\n</div>', 'https://example.org/a?b=c&d=%20#frag user@example.com C:\\temp\\new',
  'backslash n: \\n and \\t stay two characters', // TOK-07
  '你好，世界！今天天气怎么样？', 'こんにちは世界。カタカナ、ひらがな。', '안녕하세요 세계 한국어', '한국어', 'ภาษาไทยไม่มีช่องว่าง',
  'нещо на Български', 'កាន់តែពិសេសអាចខលចេញ', 'हिन्दी में क़ लिखना', 'العربية من اليمين', 'עִבְרִית', 'Tiếng Việt có dấu', 'e\u0301 a\u0308 n\u0303 \u0301x',
  'Å \u212b A\u030a ﬁ ﬂ ① ㎏ Ⅷ ｈａｌｆ', 'ẛ̣ \u1e9b\u0323 \u0344 q\u0323\u0307 q\u0307\u0323', '가각 \u1100\u1161\u11a8 \u1112\u1161\u11ab',
  '🚀 😀😃 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 👍🏽 ❤️ #️⃣', '😶‍🌫️ (normal) ✅', 'this is 🦙.cpp', // TOK-08
  'zero\u200bwidth\u200cjoin\u200der\ufeff bom\u2060', 'bidi \u202eabc\u202c \u2066x\u2069', '\u0000\u0001\u001f\u007f\u0080\u009f', 'a\u0000b',
  '\u2028\u2029 \u1680 \u2003\u2009x\u202f\u205f', '\u180e mongolian', '𝕳𝖊𝖑𝖑𝖔 𝟙𝟚𝟛 𐍈 \u{1F9FF}\u{10FFFF}\u{E0001}', '▁▁ ▁hello▁ world▁', 'Ġhello Ċ',
  'a'.repeat(1000), ' '.repeat(300), '\n'.repeat(97), '-'.repeat(257), '=+'.repeat(100), '你'.repeat(200), '🙂'.repeat(65), 'ab '.repeat(150), '0'.repeat(500),
  '\t'.repeat(50) + 'x', ' '.repeat(31) + '\n' + ' '.repeat(33), '!?'.repeat(80), 'e\u0301'.repeat(120),
  '<s>', '</s> <s>', '<|endoftext|>', '<|im_start|>user\nhi<|im_end|>\n', '<|im_start|>  <|im_end|>x<|im_end', '<think>\nhmm\n</think>', '<tool_call>{"name": 1}</tool_call>',
  '<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nx<|eot_id|>', 'a<|eot_id|> b', '<bos><start_of_turn>user\nhi<end_of_turn>\n', ' <bos> <eos> ', '<unused7><table><h1>x</h1>',
  '<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜>', '<|endofprompt|>x<|endoftext|>', '[multimodal] <unk> <pad>', '\n\n\n<start_of_turn>\n\n',
].map((text) => Buffer.from(text, 'utf8'));

const INVALID = [
  bytes(0xff), bytes(0x80), bytes(0xc3), bytes(0xe4, 0xbd), bytes(0xf0, 0x9f, 0x8c), bytes(0x61, 0xff, 0x62), bytes(0xed, 0xa0, 0x80), bytes(0xc0, 0xaf),
  bytes(0xf4, 0x90, 0x80, 0x80), bytes(0xf0, 0x9f, 0x20, 0x8c), bytes(0xe4, 0xbd, 0xa0, 0xe5, 0xa5), bytes(0x20, 0xfe, 0x20, 0xfe, 0x20),
];

// xorshift32: the same texts on every run.
function generator(seed) {
  let state = seed >>> 0;
  return (bound) => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state % bound;
  };
}

const ALPHABETS = [
  'abcdefghijklmnopqrstuvwxyz', 'ABCDEFXYZ', '0123456789', ' ', ' ', '  \t\n\r', "''’sStTrReEvVmMlLdD", '.,;:!?-_=+*/\\|()[]{}<>@#$%^&~`"',
  'äöüßéèçñøåœ', 'ΑαΒβΓγςΣ', 'абвгдЖЮя', '你好世界中文字符', 'ひらがなカタカナー', '한국어가각', 'ابتثجد', 'हिन्दीक़', 'ไทยภาษา',
  '\u0301\u0308\u0323\u093c\u094d\u200d\ufe0f', '😀🚀👨👩🏽🇩🇪', '\u00a0\u0085\u2003\u3000\u2028\u180e\u200b', '½²٣१Ⅷ①', '“”«»—…¿¡€£§©™', '\u0000\u0007\u001b\u007f',
];

export function randomTexts(count, seed) {
  const next = generator(seed);
  const texts = [];
  for (let i = 0; i < count; ++i) {
    let text = '';
    const runs = 1 + next(24);
    for (let run = 0; run < runs; ++run) {
      const alphabet = [...ALPHABETS[next(ALPHABETS.length)]];
      for (let length = 1 + next(next(4) === 0 ? 20 : 4); length > 0; --length) text += alphabet[next(alphabet.length)];
    }
    texts.push(Buffer.from(text, 'utf8'));
  }
  return texts;
}

export function corpus(randomCount) {
  return [...HAND_PICKED, ...INVALID, ...randomTexts(randomCount, 20240229)];
}

export function randomIdLists(count, vocabularySize, isAllowed) {
  const next = generator(4711);
  const lists = [];
  for (let i = 0; i < count; ++i) {
    const list = [];
    for (let length = 1 + next(24); length > 0; --length) {
      const id = next(vocabularySize);
      if (isAllowed(id)) list.push(id);
    }
    lists.push(list);
  }
  return lists;
}
