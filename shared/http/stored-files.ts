import { readFile } from "node:fs/promises";
import path from "node:path";
import { isCurrent } from "./conditional.ts";
import { GZIP_HEADERS, takesGzip } from "./encoding.ts";
import { notFound } from "./problem.ts";
import type { Reply } from "./reply.ts";

/** Files that the build put into one folder: each as it is, gzipped as `<name>.gz`, and all their hashes. */
export interface StoredFiles {
  /** `<name>?v=<hash>`: an address whose answer never changes. */
  address(name: string): Promise<string>;
  /**
   * The file, kept in memory once asked for. Under its address it may be kept for good; under its bare name it is asked
   * for again, and 304 says that it is still the same.
   *
   * @param version - The `v` of the request.
   * @throws {Problem} notFound
   */
  reply(name: string, version: string | undefined, caller: Headers): Promise<Reply>;
}

const TYPES: Record<string, string> = {
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".png": "image/png",
};
export const STORED_FILE_TYPES = Object.values(TYPES);

/** @param folder - Where the build put them. */
export function createStoredFiles(folder: string): StoredFiles {
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
      const gzip = takesGzip(caller);
      const headers = {
        ETag: `"${hash}${gzip ? "-gzip" : ""}"`,
        "Cache-Control": version === hash ? "public, max-age=31536000, immutable" : "public, no-cache",
        ...(gzip ? GZIP_HEADERS : { Vary: "Accept-Encoding" }),
      };
      if (isCurrent(headers.ETag, caller.get("if-none-match"))) {
        const { ETag, Vary } = headers;
        return { status: 304, headers: { ETag, Vary, "Cache-Control": headers["Cache-Control"] } };
      }
      const data = await read(gzip ? `${name}.gz` : name);
      return { status: 200, headers, content: { type: TYPES[path.extname(name)]!, data } };
    },
  };
}
