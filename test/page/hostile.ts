/** Answers of the API in which every text that may be any text is a hostile one. */
import { HOSTILE } from "./planted.ts";

/** Begins like a program, turns what follows, and has no place to break. */
export const LONG = HOSTILE.padEnd(4_000, "M");

// biome-ignore lint/suspicious/noExplicitAny: JSON Schema, read by its members
type Schema = any;
/** Items of a list that are enough to be looked at. */
const ITEMS = 5;
/** By these the API is asked again, and answers that it does not know them. */
const ASKED_BY = /cursor$|^etag$|^id$|Id$|^secret$/i;

export interface Hostile {
  /** An answer whose schema leaves texts open, with these filled. */
  answer(method: string, path: string, body: unknown): unknown;
}

/** @param document - The API's description, whose schemas say which texts are open: no enum, constant, format or pattern. */
export function createHostile(document: { paths: Record<string, Schema> }): Hostile {
  const routes = Object.entries(document.paths).map(([route, methods]) => ({
    methods,
    // A part that is named goes before one that is any text.
    rank: route.split("{").length,
    matches: new RegExp(`^${route.replaceAll(/\{\w+\}/g, "[^/]+")}$`),
  }));
  routes.sort((one, other) => one.rank - other.rank);

  /** What a value may be by one of them. */
  function alternatives(schemas: Schema[]): Schema[] {
    return schemas.flatMap((schema) => {
      if (schema?.$ref) return alternatives([at(document, schema.$ref)]);
      const parts = [...(schema?.anyOf ?? []), ...(schema?.oneOf ?? []), ...(schema?.allOf ?? [])];
      return parts.length > 0 ? [schema, ...alternatives(parts)] : [schema ?? {}];
    });
  }

  function filled(value: unknown, schemas: Schema[], name: string): unknown {
    const all = alternatives(schemas);
    if (typeof value === "string") {
      const texts = all.filter(({ type }) => [type].flat().includes("string"));
      const isOpen = texts.length > 0 && texts.every((one) => !(one.enum || one.const || one.format || one.pattern));
      if (!isOpen || ASKED_BY.test(name)) return value;
      // What was one of its kind stays one.
      return `${LONG} ${value}`;
    }
    if (Array.isArray(value)) {
      const items = all.flatMap((one) => (one.items ? [one.items] : []));
      return value.slice(0, ITEMS).map((item) => filled(item, items, name));
    }
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, member]) => {
        const named = all.flatMap(({ properties }) => (properties?.[key] ? [properties[key]] : []));
        if (named.length > 0) return [key, filled(member, named, key)];
        const others = all.flatMap(({ additionalProperties }) => (additionalProperties ? [additionalProperties] : []));
        return [key, filled(member, others, key)];
      }),
    );
  }

  return {
    answer(method, path, body) {
      const route = routes.find(({ matches, methods }) => matches.test(path) && methods[method.toLowerCase()]);
      const responses: Schema[] = Object.values(route?.methods[method.toLowerCase()].responses ?? {});
      const schemas = responses.flatMap(({ content }) => content?.["application/json"]?.schema ?? []);
      return filled(body, schemas, "");
    },
  };
}

const at = (document: Schema, reference: string): Schema =>
  reference
    .slice(2)
    .split("/")
    .reduce((found, part) => found[part], document);
