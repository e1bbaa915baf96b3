import { MEMBER_DESCRIPTIONS, PARAMETER_DESCRIPTIONS } from "./member-descriptions.ts";
import { type Document, operationsOf, resolveReference, type Schema, schemasOf } from "./openapi-document.ts";

/** Adds the default description of the name (member-descriptions.ts) to members and parameters without a description. */
export function describeByName(document: Document): void {
  for (const { properties = {} } of schemasOf(document)) {
    for (const [name, member] of Object.entries(properties)) {
      if (!isDescribed(document, member) && Object.hasOwn(MEMBER_DESCRIPTIONS, name))
        member.description = MEMBER_DESCRIPTIONS[name]!.description;
    }
  }
  for (const { parameters = [] } of operationsOf(document)) {
    for (const parameter of parameters) {
      const { name, schema } = parameter;
      const description = parameter.description ?? schema.description ?? PARAMETER_DESCRIPTIONS[name]?.description;
      if (description !== undefined) parameter.description = description;
    }
  }
}

/** Returns whether a member has a description, of its own or from one of its possible schemas. */
export function isDescribed(document: Document, schema: Schema): boolean {
  const forms = [schema, ...(schema.anyOf ?? [])].flatMap((form) => [form, resolveReference(document, form)]);
  return forms.some(({ description }) => description !== undefined);
}
