import { v5 } from "uuid";
import { isUlid } from "../../platform/ulid.ts";
import type { Mark } from "./provider.ts";

/*
 * The mark that a target stores beside its value: which record owns the target, and from which source version the value comes.
 * `provider.ts` defines the type `Mark`.
 */

/** Namespace of the mark IDs, a random UUID. https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-5 */
const NAMESPACE = "5d1f6f0e-3c1b-4a86-9f0c-8a3c9f2f6e57";

/**
 * Returns an ID of 36 characters that is the same for a record and a source version, on every instance and in every attempt.
 */
export const markId = ({ recordId, sourceVersion }: Pick<Mark, "recordId" | "sourceVersion">): string =>
  v5(`${recordId}/${sourceVersion}`, NAMESPACE);

/** Value of `managed-by` in tags, annotations or metadata of targets. */
export const MANAGED_BY = "credential-lifecycle";

/** Names of a mark's tags or annotations. */
export const MARK_TAGS = {
  product: "managed-by",
  record: "sync-record",
  mark: "sync-mark",
  source: "sync-source",
} as const;

/** Returns a mark as tags. */
export const tagsOf = (mark: Mark): Record<string, string> => ({
  [MARK_TAGS.product]: MANAGED_BY,
  [MARK_TAGS.record]: mark.recordId,
  [MARK_TAGS.mark]: markId(mark),
  [MARK_TAGS.source]: mark.source,
});

/**
 * Returns the owner that a target names. Returns null for a text that is not a record ID, because other writers can set any
 * tags.
 */
export const ownerNamed = (text: string | undefined): string | null =>
  text !== undefined && isUlid(text) ? text : null;

/** Returns the record that tags name as the owner, or null. */
export const ownerOf = (tags: Readonly<Record<string, string>>): string | null =>
  tags[MARK_TAGS.product] === MANAGED_BY ? ownerNamed(tags[MARK_TAGS.record]) : null;
