/** Names that the pages use for the types of `/api/v1/dta`. */

import type { ListEntry } from './generated';

export type {
  CountAnswer,
  ExpectedAnswers as Expected,
  KeyAnswer as Answer,
  List,
  ListEntry as Entry,
  ListTail as Tail,
  Memory,
  MemoryLink,
  MemoryStore as Store,
  SketchAnswer,
  Snapshot,
} from './generated';

export type Fields = NonNullable<ListEntry['fields']>;
