export interface Store {
  readonly id: number;
  name: string;
  address: string | null;
}

/** A store that is to be added. */
export interface NewStore {
  name: string;
  address?: string | null;
}

/** A refusal, with its status and the fields that are wrong; or, with status 0, no response: send the same with `key`. */
export declare class Refused extends Error {
  readonly status: number;
  readonly keys: readonly string[];
  readonly key: string | null;
}

export declare class Stores {
  constructor(url: string, options?: { token?: string | null; patience?: number });
  list(): Promise<Store[]>;
  search(words: string, limit?: number): Promise<Store[]>;
  get(id: number): Promise<Store>;
  create(store: NewStore, key?: string): Promise<Store>;
  edit(id: number, change: (store: Store) => Partial<Store> | Promise<Partial<Store>>): Promise<Store>;
}
