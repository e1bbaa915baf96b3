import type { ProviderSession } from "../../access/user.ts";
import { attribute, child, textOf } from "./xml.ts";

/** Returns the NameID of an element with its format and qualifiers. */
export function nameIdOf(parent: Element): ProviderSession["nameId"] {
  const element = child(parent, "assertion", "NameID");
  const value = textOf(element);
  if (!element || value === undefined) return undefined;
  // Members of the result, and the XML attributes that contain them.
  const names = { format: "Format", nameQualifier: "NameQualifier", spNameQualifier: "SPNameQualifier" };
  const attributes = Object.entries(names).flatMap(([member, name]) => {
    const text = attribute(element, name);
    return text === undefined ? [] : [[member, text] as const];
  });
  return { value, ...Object.fromEntries(attributes) };
}
