import * as z from "zod";
import type { Endpoint } from "../../shared/platform/http/endpoint.ts";

/** A JSON Schema of an object. */
export interface ObjectSchema {
  type: "object";
  properties: Record<string, object>;
  required: string[];
  additionalProperties: false;
  $defs?: Record<string, object>;
}

/** The keywords that a schema of a request can have at its top. */
interface RequestSchema {
  $ref?: string;
  $defs?: Record<string, RequestSchema>;
  properties?: Record<string, object>;
  required?: string[];
}

/** Returns the JSON Schema of a part of a request, as the API description has it. */
export function requestSchema(schema: z.ZodType | undefined): RequestSchema {
  if (!schema) return {};
  const whole = z.toJSONSchema(schema, {
    io: "input",
    unrepresentable: "any",
    // Numbers and booleans of a query are texts, which `override` in their metadata describes: see `wholeNumber`.
    override: ({ jsonSchema }) => {
      const { override, ...rest } = jsonSchema as { override?: object };
      if (override === undefined) return;
      for (const key of Object.keys(jsonSchema)) delete jsonSchema[key];
      Object.assign(jsonSchema, withoutUndefined({ ...rest, ...override }));
    },
  }) as RequestSchema;
  const { $ref, $defs } = whole;
  const top = $ref === undefined ? whole : ($defs?.[$ref.replace("#/$defs/", "")] ?? {});
  return { ...top, ...($defs && { $defs }) };
}

const withoutUndefined = (value: object): object =>
  Object.fromEntries(Object.entries(value).filter(([, member]) => member !== undefined));

/** Returns the names of the parameters of an endpoint in its query. */
export const queryNames = ({ query }: Pick<Endpoint<never>, "query">): string[] => Object.keys(query?.shape ?? {});

/**
 * Returns the JSON Schema of a tool's arguments.
 *
 * @param names - The parameters of the path and the query that the tool has.
 * @param required - Names of parameters that the endpoint does not require, but the tool.
 */
export function argumentsSchema(
  { params, query }: Pick<Endpoint<never>, "params" | "query">,
  names: readonly string[],
  required: readonly string[] = [],
): ObjectSchema {
  const [ofPath, ofQuery] = [requestSchema(params), requestSchema(query)];
  const properties = { ...ofPath.properties, ...ofQuery.properties };
  const requiredNames = new Set([...(ofPath.required ?? []), ...(ofQuery.required ?? []), ...required]);
  const definitions = { ...ofPath.$defs, ...ofQuery.$defs };
  return {
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, properties[name] ?? {}])),
    required: names.filter((name) => requiredNames.has(name)),
    additionalProperties: false,
    ...(Object.keys(definitions).length > 0 && { $defs: definitions as Record<string, object> }),
  };
}
