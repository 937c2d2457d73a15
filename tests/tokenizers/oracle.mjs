// node oracle.mjs NODE_MODULES PACKAGE: prints what the reference makes of the corpus with the package's vocabulary.
import { createRequire } from 'node:module';
import path from 'node:path';

import { corpus, randomIdLists } from './corpus.mjs';
import { answer, decodeAll, isByteToken } from './reference.mjs';

const [nodeModules, name] = process.argv.slice(2);
const require = createRequire(path.join(path.resolve(nodeModules), 'x.js'));
const { Tokenizer } = require('tokenizers');
const file = path.join(path.resolve(nodeModules), name, 'models', 'tokenizer.json');
const tokenizer = Tokenizer.fromFile(file);
const cases = await answer(tokenizer, corpus(1500));
const lists = randomIdLists(400, tokenizer.getVocabSize(), (id) => !isByteToken(tokenizer.idToToken(id)));
process.stdout.write(JSON.stringify({ file, cases, decodes: await decodeAll(tokenizer, lists) }));
