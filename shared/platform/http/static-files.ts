import { readFile } from "node:fs/promises";
import path from "node:path";
import { isCurrent } from "./answer-version.ts";
import { accepts, type Coding, contentCodingHeaders } from "./compression.ts";
import { notFound } from "./problem.ts";
import type { Reply } from "./reply.ts";

/**
 * Serves files of a folder that the build created. The folder has each file uncompressed and in each compressed form
 * (`<name>.gz`, `<name>.br`), and `hashes.json` with the hash of each file.
 */
export interface StaticFiles {
  /** Returns `<name>?v=<hash>`, an address with immutable content. */
  address(name: string): Promise<string>;
  /**
   * Returns a file, cached in memory after the first request. With its versioned address clients can cache it forever. With its
   * bare name clients revalidate, and 304 confirms that it has not changed.
   *
   * @param version - The `v` parameter of the request; `NAMED_BY_HASH` if the name itself contains the hash.
   * @throws {Problem} notFound
   */
  reply(name: string, version: string | typeof NAMED_BY_HASH | undefined, caller: Headers): Promise<Reply<never>>;
}

/** Replaces a version for files whose name contains a hash of their content. */
export const NAMED_BY_HASH = Symbol("named by hash");

const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".svg": "image/svg+xml; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".png": "image/png",
};

/** File name extensions of compressed files. */
const EXTENSIONS: Record<Coding, string> = { br: ".br", gzip: ".gz" };

/**
 * Creates the server of the built files.
 *
 * @param folder - Output folder of the build.
 * @param codings - Codings in which every file exists, smallest first.
 */
export function createStaticFiles(folder: string, codings: readonly Coding[] = ["gzip"]): StaticFiles {
  let hashes: Promise<Record<string, string>> | undefined;
  const cache = new Map<string, Promise<Uint8Array>>();

  function hashesOf(): Promise<Record<string, string>> {
    hashes ??= readFile(path.join(folder, "hashes.json"), "utf8").then((text) => JSON.parse(text));
    return hashes;
  }

  function read(file: string): Promise<Uint8Array> {
    const cachedFile = cache.get(file) ?? readFile(path.join(folder, file));
    cache.set(file, cachedFile);
    return cachedFile;
  }

  return {
    address: async (name) => `${name}?v=${(await hashesOf())[name]}`,

    async reply(name, version, caller) {
      const hashByName = await hashesOf();
      if (!Object.hasOwn(hashByName, name)) throw notFound("This file");
      const hash = hashByName[name]!;
      const coding = codings.find((candidate) => accepts(caller, candidate));
      const headers = {
        ETag: `"${hash}${coding ? `-${coding}` : ""}"`,
        "Cache-Control":
          version === hash || version === NAMED_BY_HASH ? "public, max-age=31536000, immutable" : "public, no-cache",
        ...contentCodingHeaders(coding),
      };
      if (isCurrent(headers.ETag, caller.get("if-none-match"))) {
        const { ETag, Vary } = headers;
        return { status: 304, headers: { ETag, Vary, "Cache-Control": headers["Cache-Control"] } };
      }
      const data = await read(coding ? `${name}${EXTENSIONS[coding]}` : name);
      return { status: 200, headers, content: { type: TYPES[path.extname(name)]!, data } };
    },
  };
}
