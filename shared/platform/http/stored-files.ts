import { readFile } from "node:fs/promises";
import path from "node:path";
import { isCurrent } from "./conditional.ts";
import { type Coding, codedHeaders, takes } from "./encoding.ts";
import { notFound } from "./problem.ts";
import type { Reply } from "./reply.ts";

/** Files that the build put into one folder: each as it is, compressed as `<name>.gz` and `<name>.br`, and all their hashes. */
export interface StoredFiles {
  /** `<name>?v=<hash>`: an address whose answer never changes. */
  address(name: string): Promise<string>;
  /**
   * The file, kept in memory once asked for. Under its address it may be kept for good; under its bare name it is asked
   * for again, and 304 says that it is still the same.
   *
   * @param version - The `v` of the request; `NAMED_BY_HASH` where the name itself carries the file's hash.
   * @throws {Problem} notFound
   */
  reply(name: string, version: string | typeof NAMED_BY_HASH | undefined, caller: Headers): Promise<Reply<never>>;
}

/** In the place of a version: the file's name never stands for another content. */
export const NAMED_BY_HASH = Symbol("named by hash");

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".svg": "image/svg+xml",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".png": "image/png",
};

/** What a compressed file's name ends with. */
const ENDING: Record<Coding, string> = { br: ".br", gzip: ".gz" };

/**
 * @param folder - Where the build put them.
 * @param codings - Those that every file is there in, the smallest first.
 */
export function createStoredFiles(folder: string, codings: readonly Coding[] = ["gzip"]): StoredFiles {
  let hashes: Promise<Record<string, string>> | undefined;
  const kept = new Map<string, Promise<Uint8Array>>();

  function hashesOf(): Promise<Record<string, string>> {
    hashes ??= readFile(path.join(folder, "hashes.json"), "utf8").then((text) => JSON.parse(text));
    return hashes;
  }

  function read(file: string): Promise<Uint8Array> {
    const found = kept.get(file) ?? readFile(path.join(folder, file));
    kept.set(file, found);
    return found;
  }

  return {
    address: async (name) => `${name}?v=${(await hashesOf())[name]}`,

    async reply(name, version, caller) {
      const all = await hashesOf();
      if (!Object.hasOwn(all, name)) throw notFound("This file");
      const hash = all[name]!;
      const coding = codings.find((one) => takes(caller, one));
      const headers = {
        ETag: `"${hash}${coding ? `-${coding}` : ""}"`,
        "Cache-Control":
          version === hash || version === NAMED_BY_HASH ? "public, max-age=31536000, immutable" : "public, no-cache",
        ...codedHeaders(coding),
      };
      if (isCurrent(headers.ETag, caller.get("if-none-match"))) {
        const { ETag, Vary } = headers;
        return { status: 304, headers: { ETag, Vary, "Cache-Control": headers["Cache-Control"] } };
      }
      const data = await read(coding ? `${name}${ENDING[coding]}` : name);
      return { status: 200, headers, content: { type: TYPES[path.extname(name)]!, data } };
    },
  };
}
