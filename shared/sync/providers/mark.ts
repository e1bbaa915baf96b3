import { v5 } from "uuid";
import { isUlid } from "../../platform/ulid.ts";
import type { Mark } from "./provider.ts";

/** The namespace of the ids below, a UUID of our own. https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-5 */
const NAMESPACE = "5d1f6f0e-3c1b-4a86-9f0c-8a3c9f2f6e57";

/** The same id for the same record and source version, on every instance and in every try: 36 characters. */
export const markId = ({ recordId, sourceVersion }: Pick<Mark, "recordId" | "sourceVersion">): string =>
  v5(`${recordId}/${sourceVersion}`, NAMESPACE);

/** What a target carries to say whose it is: as tags, annotations or metadata, whatever the provider calls them. */
export const MANAGED_BY = "credential-lifecycle";

/** The names of a mark's members, where a provider has tags, annotations or the like. */
export const MARK_TAGS = {
  product: "managed-by",
  record: "sync-record",
  mark: "sync-mark",
  source: "sync-source",
} as const;

/** A mark as tags. */
export const tagsOf = (mark: Mark): Record<string, string> => ({
  [MARK_TAGS.product]: MANAGED_BY,
  [MARK_TAGS.record]: mark.recordId,
  [MARK_TAGS.mark]: markId(mark),
  [MARK_TAGS.source]: mark.source,
});

/** What a target says of its owner: null where that is no record's id, for anybody writes tags, with anything in them. */
export const ownerNamed = (text: string | undefined): string | null =>
  text !== undefined && isUlid(text) ? text : null;

/** The record that tags name as the owner; null where they name none. */
export const ownerOf = (tags: Readonly<Record<string, string>>): string | null =>
  tags[MARK_TAGS.product] === MANAGED_BY ? ownerNamed(tags[MARK_TAGS.record]) : null;
