/** The parts of an OpenAPI 3.1 document that this service completes after the generator. */

export interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  example?: unknown;
  default?: unknown;
  const?: unknown;
  enum?: unknown[];
  format?: string;
  minimum?: number;
  maximum?: number;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema | boolean;
  items?: Schema;
  prefixItems?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
}

export interface Parameter {
  name: string;
  in: "path" | "query" | "header" | "cookie";
  description?: string;
  example?: unknown;
  schema: Schema;
}

export interface MediaType {
  schema: Schema;
  example?: unknown;
  examples?: Record<string, object>;
}

export interface Operation {
  operationId: string;
  tags: string[];
  parameters?: Parameter[];
  requestBody?: { content: Record<string, MediaType> };
  responses: Record<string, { content?: Record<string, MediaType> }>;
}

export interface Document {
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  /** Requests that the service sends. */
  webhooks: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema>; examples?: Record<string, object> };
}

export const operationsOf = (document: Document): Operation[] =>
  Object.values(document.paths).flatMap((path) => Object.values(path));

/** Resolves a reference. Returns any other schema unchanged. */
export const resolveReference = (document: Document, schema: Schema): Schema =>
  schema.$ref === undefined ? schema : (document.components.schemas[schema.$ref.split("/").at(-1)!] as Schema);

/** Lists the direct subschemas of a schema. */
export const subschemasOf = (schema: Schema): Schema[] => [
  ...Object.values(schema.properties ?? {}),
  ...(typeof schema.additionalProperties === "object" ? [schema.additionalProperties] : []),
  ...(schema.items ? [schema.items] : []),
  ...(schema.prefixItems ?? []),
  ...(schema.anyOf ?? []),
  ...(schema.oneOf ?? []),
  ...(schema.allOf ?? []),
];

/** Lists all schemas of the document and their subschemas. Named schemas are listed once. */
export function schemasOf(document: Document): Schema[] {
  const bodies = operationsOf(document).flatMap(({ requestBody, responses }) => [
    ...Object.values(requestBody?.content ?? {}),
    ...Object.values(responses).flatMap(({ content = {} }) => Object.values(content)),
  ]);
  const within = (schema: Schema): Schema[] => [schema, ...subschemasOf(schema).flatMap(within)];
  return [...Object.values(document.components.schemas), ...bodies.map(({ schema }) => schema)].flatMap(within);
}
