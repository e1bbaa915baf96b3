import { v5 } from "uuid";
import type { Mark } from "./provider.ts";

/** The namespace of the ids below, a UUID of our own. https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-5 */
const NAMESPACE = "5d1f6f0e-3c1b-4a86-9f0c-8a3c9f2f6e57";

/** The same id for the same record and source version, on every instance and in every try: 36 characters. */
export const markId = ({ recordId, sourceVersion }: Pick<Mark, "recordId" | "sourceVersion">): string =>
  v5(`${recordId}/${sourceVersion}`, NAMESPACE);

/** What a target carries to say whose it is: as tags, annotations or metadata, whatever the provider calls them. */
export const MANAGED_BY = "credential-lifecycle";
