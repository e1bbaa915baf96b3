/** Replaces every free-text value in API responses with hostile text. */
import { HOSTILE } from "./seed-data.ts";

/** Markup, a direction mark, and 4,000 characters without a line break opportunity. */
export const LONG = HOSTILE.padEnd(4_000, "M");

// biome-ignore lint/suspicious/noExplicitAny: JSON Schema, read by its members
type Schema = any;
/** Maximum number of items to keep of a list. */
const ITEMS = 5;
/** Members that the page sends back to the API, so they must keep their values. */
const SENT_BACK = /cursor$|^etag$|^id$|Id$|^secret$/i;

export interface Hostile {
  /** Returns a response body with hostile text in all free-text members. */
  answer(method: string, path: string, body: unknown): unknown;
}

/** @param document - The OpenAPI document. A string without enum, constant, format or pattern is free text. */
export function createHostile(document: { paths: Record<string, Schema> }): Hostile {
  const routes = Object.entries(document.paths).map(([route, methods]) => ({
    methods,
    // Fixed segments take precedence over parameters.
    rank: route.split("{").length,
    matches: new RegExp(`^${route.replaceAll(/\{\w+\}/g, "[^/]+")}$`),
  }));
  routes.sort((one, other) => one.rank - other.rank);

  /** Returns all schemas that can apply to a value, with references and combinations resolved. */
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
      if (!isOpen || SENT_BACK.test(name)) return value;
      // The original value stays as a suffix, so that unique values stay unique.
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
