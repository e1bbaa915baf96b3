/** Replaces free-text values in API responses with hostile text, for tests that the page shows such text safely. */
import { HOSTILE } from "./seed-data.ts";

/** Text of 4,000 characters: markup, a mark that reverses the text direction, and one word in which no line can break. */
export const LONG_HOSTILE_TEXT = HOSTILE.padEnd(4_000, "M");

// biome-ignore lint/suspicious/noExplicitAny: JSON Schema, read by its members
type Schema = any;
/** Maximum number of items of a list in a changed response. */
const MAX_ITEMS = 5;
/** Members that the page sends back to the API, so they must keep their values. */
const SENT_BACK = /cursor$|^etag$|^id$|Id$|^secret$/i;

export interface HostileResponses {
  /** Returns the response body with hostile text in all free-text members. */
  replaceTexts(method: string, path: string, body: unknown): unknown;
}

/**
 * Creates the replacement of free texts in responses of an API.
 *
 * @param document - The OpenAPI document. A member is free text if its schema is a string without enum, constant, format and
 * pattern.
 */
export function createHostileResponses(document: { paths: Record<string, Schema> }): HostileResponses {
  const routes = Object.entries(document.paths).map(([route, methods]) => ({
    methods,
    // Routes with fewer parameters are tried first, because fixed segments take precedence over parameters.
    rank: route.split("{").length,
    matches: new RegExp(`^${route.replaceAll(/\{\w+\}/g, "[^/]+")}$`),
  }));
  routes.sort((one, other) => one.rank - other.rank);

  /** Returns all schemas that can apply to a value, with references and combinations resolved. */
  function alternatives(schemas: Schema[]): Schema[] {
    return schemas.flatMap((schema) => {
      if (schema?.$ref) return alternatives([resolveReference(document, schema.$ref)]);
      const parts = [...(schema?.anyOf ?? []), ...(schema?.oneOf ?? []), ...(schema?.allOf ?? [])];
      return parts.length > 0 ? [schema, ...alternatives(parts)] : [schema ?? {}];
    });
  }

  /**
   * Returns the value with hostile text in all of its free-text members.
   *
   * @param schemas - The schemas that can describe the value.
   * @param name - The name of the member that contains the value.
   */
  function withHostileText(value: unknown, schemas: Schema[], name: string): unknown {
    const possibleSchemas = alternatives(schemas);
    if (typeof value === "string") {
      const texts = possibleSchemas.filter(({ type }) => [type].flat().includes("string"));
      const isFreeText =
        texts.length > 0 && texts.every((one) => !(one.enum || one.const || one.format || one.pattern));
      if (!isFreeText || SENT_BACK.test(name)) return value;
      // The original value stays as a suffix, so that unique values stay unique.
      return `${LONG_HOSTILE_TEXT} ${value}`;
    }
    if (Array.isArray(value)) {
      const items = possibleSchemas.flatMap((one) => (one.items ? [one.items] : []));
      return value.slice(0, MAX_ITEMS).map((item) => withHostileText(item, items, name));
    }
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, member]) => {
        const named = possibleSchemas.flatMap(({ properties }) => (properties?.[key] ? [properties[key]] : []));
        if (named.length > 0) return [key, withHostileText(member, named, key)];
        const additional = possibleSchemas.flatMap(({ additionalProperties }) =>
          additionalProperties ? [additionalProperties] : [],
        );
        return [key, withHostileText(member, additional, key)];
      }),
    );
  }

  return {
    replaceTexts(method, path, body) {
      const route = routes.find(({ matches, methods }) => matches.test(path) && methods[method.toLowerCase()]);
      const responses: Schema[] = Object.values(route?.methods[method.toLowerCase()].responses ?? {});
      const schemas = responses.flatMap(({ content }) => content?.["application/json"]?.schema ?? []);
      return withHostileText(body, schemas, "");
    },
  };
}

/** Returns the schema of a reference such as `#/components/schemas/Asset`. */
const resolveReference = (document: Schema, reference: string): Schema =>
  reference
    .slice(2)
    .split("/")
    .reduce((schema, part) => schema[part], document);
