/** Characters of a path that a sign-in may lead back to. */
export const LONGEST_RETURN_URL = 2048;

/** The path as the header Location takes it, which is in ASCII; what else a person's path holds is encoded. */
export const asLocation = (path: string): string => path.replace(/[^\x21-\x7e]+/g, encodeURIComponent);

/**
 * Whether a browser that is sent to this path stays with us, whatever it makes of it: browsers take `\` for `/`, leave out
 * tabs and line ends, and take two slashes for another host. https://url.spec.whatwg.org/#concept-basic-url-parser
 */
export function isOwnPath(path: string, origin: string): boolean {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  if (path.length > LONGEST_RETURN_URL || !/^\/(?!\/)[^\\\u0000-\u001f\u007f]*$/.test(path)) return false;
  return URL.canParse(path, origin) && new URL(path, origin).origin === origin;
}
