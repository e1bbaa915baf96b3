import { type Document, operationsOf, resolved, type Schema, schemasOf } from "./document.ts";
import { MEMBERS, PARAMETERS } from "./members.ts";

/** Gives every member and parameter without words of its own those that its name has everywhere. */
export function describeByName(document: Document): void {
  for (const { properties = {} } of schemasOf(document)) {
    for (const [name, member] of Object.entries(properties)) {
      if (!isDescribed(document, member) && Object.hasOwn(MEMBERS, name))
        member.description = MEMBERS[name]!.description;
    }
  }
  for (const { parameters = [] } of operationsOf(document)) {
    for (const parameter of parameters) {
      const { name, schema } = parameter;
      const words = parameter.description ?? schema.description ?? PARAMETERS[name]?.description;
      if (words !== undefined) parameter.description = words;
    }
  }
}

/** A member is described by its own words, or by those of a schema that it can be. */
export function isDescribed(document: Document, schema: Schema): boolean {
  const forms = [schema, ...(schema.anyOf ?? [])].flatMap((form) => [form, resolved(document, form)]);
  return forms.some(({ description }) => description !== undefined);
}
