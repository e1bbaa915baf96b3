/** The web page: `GET /` (see catch-all.ts) and its files. The page uses only the API. */
import path from "node:path";
import * as z from "zod";
import type { Endpoint } from "../shared/platform/http/endpoint.ts";
import type { Reply } from "../shared/platform/http/reply.ts";
import { createStaticFiles, NAMED_BY_HASH } from "../shared/platform/http/static-files.ts";
import { endpoint } from "./declare.ts";
import type { Services } from "./services.ts";

/** The build copies the files of the page next to the bundle. */
const files = createStaticFiles(path.join(import.meta.dirname, "page"), ["br", "gzip"]);

/**
 * Content security policy: the page loads only its own files and calls the API. Fluent UI adds rules through the CSSOM to
 * `<style>` elements that are empty when the browser checks them, so the only allowed hash is the one of an empty text.
 */
const PAGE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='; img-src 'self'; font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Returns the page's HTML. */
export async function page(caller: Headers): Promise<Reply<never>> {
  const { headers, ...reply } = await files.reply("index.html", undefined, caller);
  return { ...reply, headers: { ...headers, "Content-Security-Policy": PAGE_POLICY } };
}

const pageFile = endpoint({
  name: "pageFile",
  method: "GET",
  route: "page/{file}",
  summary: "Get a file of the web page",
  tag: "Documentation",
  access: "open",
  tier: "core",
  undocumented: true,
  rateLimit: "none",
  // Each response takes one of the 100 slots that an instance has per second for static files and rejections.
  paced: 1,
  params: z.object({ file: z.string() }),
  responds: { 200: { description: "The file.", mediaType: "*/*" } },
  // The file names contain a hash of the content, so browsers can cache the files forever.
  handle: ({ params: { file }, headers }) => files.reply(file, NAMED_BY_HASH, headers),
});

export const endpoints: Endpoint<Services>[] = [pageFile];
