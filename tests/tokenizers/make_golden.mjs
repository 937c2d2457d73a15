// node make_golden.mjs NODE_MODULES > golden.json: small tokenizers, each for one thing that a tokenizer.json can say,
// and what the reference makes of a few texts with them. The C++ tests read the output; run this again when a
// tokenizer is added.
import { createRequire } from 'node:module';
import path from 'node:path';

import { randomTexts } from './corpus.mjs';
import { answer } from './reference.mjs';

const require = createRequire(path.join(path.resolve(process.argv[2]), 'x.js'));
const { Tokenizer } = require('tokenizers');

const TRAINING_TEXT = `the cat sat on the mat, the hat. The THE "cat's" isn't 12 123 1234 12345 3.14 a-b a--b  two  spaces   three
new\nlines\n\n\ttabs hello world Hello World HELLO <tag> x_y don't we'll I'm you've caf\u00e9 cafe\u0301 na\u00efve stra\u00dfe 你好 世界 ½ ² 🙂 ! ? !? ... `.repeat(2);

const TEXTS = [
  '', ' ', '  ', 'the cat', ' the cat', 'The CAT sat!', "don't we'll", '12345 123', 'a-b--c', 'hello, world!!',
  'new\nlines\n\n x', 'café cafe\u0301 naïve', '你好 世界🙂', 'Ω≈ç √∫', '½ cup ² \u2167 ٣', 'a\u00a0b\u3000c', '▁the▁cat', 'straße ẞ İ ﬁ Å', 'xyxxyx', 'w'.repeat(45),
  '<s>the cat</s>', '<s> word', 'a<s>b', 'G<s>G', '<s> <s>', '  <m>  <m> x', 'x<m>y <M> <Mm>', 'a <w> b<w>c <w>d w<w> é<w> 1<w>', 'The THE the HELLO hello Hello', ' <l> <l>', '<r>  <r> \n', '<lr>  <l>  <r>  x',
  '..123.4567', 'foo(bar)[1]={2}', '  lead and trail  ',
].map((text) => Buffer.from(text, 'utf8'));

// A byte-pair encoding trained on the text as one long word, so that merges run over every border.
function train(symbols, mergeCount) {
  const vocab = new Map();
  const add = (symbol) => vocab.has(symbol) || vocab.set(symbol, vocab.size);
  for (const symbol of ['<unk>', ...new Set(symbols)]) add(symbol);
  const merges = [];
  let word = symbols;
  for (let i = 0; i < mergeCount; ++i) {
    const counts = new Map();
    for (let k = 0; k + 1 < word.length; ++k) {
      const key = word[k] + '\u0001' + word[k + 1];
      counts.set(key, (counts.get(key) ?? 0) + 1);
    }
    let best = null;
    for (const [key, count] of counts) if (best === null || count > counts.get(best)) best = key;
    const [left, right] = best.split('\u0001');
    if ((left + right).length > 8) { // short entries are the interesting ones
      word = word.filter((s) => s !== left || left.length === 1);
      continue;
    }
    merges.push([left, right]);
    add(left + right);
    const merged = [];
    for (let k = 0; k < word.length; ++k) {
      if (word[k] === left && word[k + 1] === right) merged.push(left + right), ++k;
      else merged.push(word[k]);
    }
    word = merged;
  }
  return { vocab: Object.fromEntries(vocab), merges };
}

const byteAlphabet = (() => {
  const printable = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 255 && b !== 173);
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(printable(b) ? b : next++));
})();
const toAlphabet = (text) => [...Buffer.from(text, 'utf8')].map((b) => byteAlphabet[b]);

function withBytes({ vocab, merges }) {
  const copy = { ...vocab };
  for (let b = 0; b < 256; ++b) copy[`<0x${b.toString(16).toUpperCase().padStart(2, '0')}>`] = Object.keys(copy).length;
  return { vocab: copy, merges };
}

function withAlphabet({ vocab, merges }) {
  const copy = { ...vocab };
  for (const c of byteAlphabet) if (!(c in copy)) copy[c] = Object.keys(copy).length;
  return { vocab: copy, merges };
}

// "cafe" as c@ is written in GPT-1's kind of vocabulary: a suffix on the last character of a word.
const affixes = (() => {
  const vocab = { '<unk>': 0 };
  const add = (s) => (s in vocab ? 0 : (vocab[s] = Object.keys(vocab).length));
  for (const c of 'abcdehilotw') for (const s of [c, c + '</w>', '##' + c, '##' + c + '</w>']) add(s);
  const merges = [['t', '##h'], ['th', '##e</w>'], ['c', '##a'], ['ca', '##t</w>'], ['##l', '##l'], ['##e', '##ll'], ['h', '##ell']];
  for (const [left, right] of merges) add(left + right.slice(2));
  return { vocab, merges };
})();

const vocabularies = {
  characters: train([...TRAINING_TEXT], 120),
  marks: withBytes(train([...('▁' + TRAINING_TEXT.replaceAll(' ', '▁'))], 120)),
  bytes: withAlphabet(train(toAlphabet(TRAINING_TEXT), 120)),
  affixes,
};

const special = (content, flags = {}) => ({ content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...flags });
const LLAMA_NORMALIZER = { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, { type: 'Replace', pattern: { String: ' ' }, content: '▁' }] };
const LLAMA_DECODER = { type: 'Sequence', decoders: [{ type: 'Replace', pattern: { String: '▁' }, content: ' ' }, { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }] };
const FALLBACK = { unk_token: '<unk>', fuse_unk: true, byte_fallback: true };
const BOS = ['<s>', '</s>'].map((t) => special(t));
const template = (ids) => ({
  type: 'TemplateProcessing', single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: '</s>', type_id: 0 } }],
  pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
  special_tokens: Object.fromEntries(['<s>', '</s>'].map((t) => [t, { id: t, ids: [ids[t]], tokens: [t] }])),
});
const metaspace = (prepend_scheme, split) => ({ type: 'Metaspace', replacement: '▁', prepend_scheme, split });
const split = (pattern, behavior, invert) => ({ type: 'Split', pattern, behavior, invert });
const byteLevel = (add_prefix_space, use_regex) => ({ type: 'ByteLevel', add_prefix_space, trim_offsets: true, use_regex });
const sequence = (...pretokenizers) => ({ type: 'Sequence', pretokenizers });
const normalizers = (...list) => ({ type: 'Sequence', normalizers: list });
const UNKNOWN = { unk_token: '<unk>' };

const tokenizers = [
  // TOK-01, TOK-02, TOK-08: the two ways of Llama 2, before and after the change of the space at the beginning.
  { name: 'llama legacy', vocabulary: 'marks', model: FALLBACK, normalizer: LLAMA_NORMALIZER, decoder: LLAMA_DECODER, added_tokens: BOS, template: true },
  { name: 'llama first', vocabulary: 'marks', model: FALLBACK, pre_tokenizer: metaspace('first', false), decoder: LLAMA_DECODER, added_tokens: BOS, template: true },
  { name: 'metaspace always', vocabulary: 'marks', model: FALLBACK, pre_tokenizer: metaspace('always', true), decoder: metaspace('always', true), added_tokens: BOS },
  { name: 'metaspace never', vocabulary: 'marks', model: UNKNOWN, pre_tokenizer: metaspace('never', true), decoder: metaspace('never', true), added_tokens: BOS },
  { name: 'metaspace first', vocabulary: 'marks', model: FALLBACK, normalizer: { type: 'Strip', strip_left: true, strip_right: false }, pre_tokenizer: metaspace('first', true), decoder: metaspace('first', true), added_tokens: BOS },
  // Added tokens with their flags, TOK-04.
  {
    name: 'flags', vocabulary: 'characters', model: UNKNOWN, normalizer: { type: 'Lowercase' }, decoder: { type: 'Fuse' },
    added_tokens: [special('<l>', { lstrip: true }), special('<r>', { rstrip: true }), special('<lr>', { lstrip: true, rstrip: true }), special('<w>', { single_word: true }),
      special('<M>', { normalized: true, special: false }), special('THE', { normalized: true, special: false }), special('HEL', { normalized: false, special: false }), special('<s>x', {}), special('<s>', {})],
  },
  { name: 'normalized with prepend', vocabulary: 'marks', model: FALLBACK, normalizer: LLAMA_NORMALIZER, decoder: LLAMA_DECODER, added_tokens: [special('<s>', { normalized: true, special: false }), special('<m>', { normalized: true, special: false, rstrip: true })] },
  // TOK-05: Falcon's pre-tokenizer.
  { name: 'falcon', vocabulary: 'bytes', pre_tokenizer: sequence({ type: 'Punctuation', behavior: 'Contiguous' }, byteLevel(false, true), { type: 'Digits', individual_digits: false }, split({ Regex: '[0-9][0-9][0-9]' }, 'Isolated', false)), decoder: byteLevel(false, true) },
  ...['Isolated', 'Removed', 'Contiguous', 'MergedWithPrevious', 'MergedWithNext'].flatMap((behavior) => [false, true].map((invert) => (
    { name: `split ${behavior} ${invert}`, vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: split(invert ? { Regex: '[a-z]+|\\d' } : { String: 't' }, behavior, invert), decoder: { type: 'Fuse' } }))),
  { name: 'split regex contiguous', vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: split({ Regex: '[aeiou ]' }, 'Contiguous', false), decoder: { type: 'Fuse' } },
  { name: 'oniguruma', vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: sequence(split({ Regex: '(?<=x)y|\\p{Han}+|\\w+?(?=t)' }, 'Isolated', false), split({ Regex: '(?<!l)l{1,2}?|$' }, 'MergedWithNext', false)), decoder: { type: 'Fuse' } },
  { name: 'empty pattern', vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: split({ String: '' }, 'Isolated', false), decoder: { type: 'Fuse' } },
  { name: 'whitespace', vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: { type: 'Whitespace' } },
  { name: 'whitespace split', vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: { type: 'WhitespaceSplit' } },
  { name: 'bert', vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: { type: 'BertPreTokenizer' } },
  { name: 'delimiter', vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: { type: 'CharDelimiterSplit', delimiter: 't' } },
  ...[false, true].map((individual_digits) => ({ name: `digits ${individual_digits}`, vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: { type: 'Digits', individual_digits }, decoder: { type: 'Fuse' } })),
  ...['Removed', 'MergedWithNext'].map((behavior) => ({ name: `punctuation ${behavior}`, vocabulary: 'characters', model: UNKNOWN, pre_tokenizer: { type: 'Punctuation', behavior }, decoder: { type: 'Fuse' } })),
  ...['NFC', 'NFD', 'NFKC', 'NFKD'].map((type) => ({ name: type, vocabulary: 'bytes', normalizer: { type }, pre_tokenizer: byteLevel(false, true), decoder: byteLevel(false, true) })),
  { name: 'strip accents', vocabulary: 'bytes', normalizer: normalizers({ type: 'NFD' }, { type: 'StripAccents' }, { type: 'Lowercase' }, { type: 'Strip', strip_left: true, strip_right: true }), pre_tokenizer: byteLevel(true, true), decoder: byteLevel(true, true) },
  { name: 'replace', vocabulary: 'characters', model: UNKNOWN, normalizer: normalizers({ type: 'Replace', pattern: { Regex: ' {2,}|\\n+' }, content: ' ' }, { type: 'Replace', pattern: { String: 'cat' }, content: '' }), decoder: { type: 'Fuse' } },
  { name: 'byte normalizer', vocabulary: 'bytes', normalizer: { type: 'ByteLevel' }, decoder: byteLevel(false, false) },
  { name: 'gpt-2', vocabulary: 'bytes', pre_tokenizer: byteLevel(false, true), post_processor: byteLevel(false, true), decoder: byteLevel(false, true), added_tokens: [special('<s>'), special('<m>', { lstrip: true })] },
  { name: 'roberta', vocabulary: 'bytes', pre_tokenizer: byteLevel(true, true), decoder: byteLevel(true, true), added_tokens: BOS, cls: 'RobertaProcessing' },
  { name: 'bert processing', vocabulary: 'bytes', model: { ignore_merges: true }, pre_tokenizer: byteLevel(false, false), decoder: byteLevel(false, false), added_tokens: BOS, cls: 'BertProcessing' },
  { name: 'unknown one by one', vocabulary: 'characters', model: { unk_token: '<unk>', fuse_unk: false }, decoder: { type: 'Fuse' } },
  { name: 'unknown fused', vocabulary: 'characters', model: { unk_token: '<unk>', fuse_unk: true }, decoder: { type: 'Fuse' } },
  { name: 'unknown dropped', vocabulary: 'characters', model: { unk_token: null }, decoder: { type: 'Fuse' } },
  { name: 'ignore merges', vocabulary: 'characters', model: { unk_token: '<unk>', ignore_merges: true }, pre_tokenizer: { type: 'WhitespaceSplit' } },
  { name: 'affixes', vocabulary: 'affixes', model: { unk_token: '<unk>', continuing_subword_prefix: '##', end_of_word_suffix: '</w>' }, pre_tokenizer: { type: 'WhitespaceSplit' } },
  { name: 'strip decoder', vocabulary: 'characters', model: UNKNOWN, decoder: { type: 'Sequence', decoders: [{ type: 'Strip', content: 't', start: 1, stop: 0 }, { type: 'Replace', pattern: { String: 'at' }, content: 'AT' }] } },
];

const texts = [...TEXTS, ...randomTexts(3, 5)];
const golden = { vocabularies, tokenizers: [] };
for (const { name, vocabulary, model = {}, added_tokens = [], template: wantsTemplate, cls, ...parts } of tokenizers) {
  const { vocab, merges } = vocabularies[vocabulary];
  let next = Object.keys(vocab).length;
  const tokens = added_tokens.map((token) => ({ id: next++, ...token }));
  const ids = Object.fromEntries(tokens.map((token) => [token.content, token.id]));
  const rest = { version: '1.0', truncation: null, padding: null, added_tokens: tokens, normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, ...parts };
  if (wantsTemplate) rest.post_processor = template(ids);
  if (cls) rest.post_processor = { type: cls, sep: ['</s>', ids['</s>']], cls: ['<s>', ids['<s>']], ...(cls === 'RobertaProcessing' ? { trim_offsets: true, add_prefix_space: false } : {}) };
  const modelRest = { type: 'BPE', dropout: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false, byte_fallback: false, ...model };
  const reference = Tokenizer.fromString(JSON.stringify({ ...rest, model: { ...modelRest, vocab, merges } }));
  const cases = await answer(reference, texts);
  golden.tokenizers.push({
    name, vocabulary, model: modelRest, tokenizer: rest,
    // For each text: ids, ids without special tokens (null: the same), decoded (null: the text), and without special
    // tokens (null: the same as decoded).
    cases: cases.map((c, i) => [c.ids, c.plain_ids.length === c.ids.length ? null : c.plain_ids, c.decoded === texts[i].toString('utf8') ? null : c.decoded, c.decoded_skip === c.decoded ? null : c.decoded_skip]),
  });
}
// One line for each tokenizer and vocabulary.
const lines = (list) => list.map((x) => JSON.stringify(x)).join(',\n');
process.stdout.write(`{"texts": ${JSON.stringify(texts.map((t) => t.toString('utf8')))},\n"vocabularies": {\n${Object.entries(vocabularies).map(([k, v]) => `${JSON.stringify(k)}: ${JSON.stringify(v)}`).join(',\n')}\n},\n"tokenizers": [\n${lines(golden.tokenizers)}\n]}\n`);
