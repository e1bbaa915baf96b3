import type { AttentionTexts } from "./issuers/issuer.ts";
import { issuerOf } from "./issuers/issuers.ts";
import { placeOf } from "./publications.ts";
import { type Attention, isToRestore, isVaultSecret, type RotationFailure, type RotationRecord } from "./rotation.ts";

/**
 * Returns the text that a user gets when a rotation needs attention: what happened, what was done, what is safe and what to do.
 * Names places and key IDs, never a value.
 */
export function attentionFor(record: RotationRecord, { code, message, remedy }: RotationFailure, now: Date): Attention {
  const texts = isVaultSecret(record) ? VAULT_SECRET_TEXTS : issuerOf(record).attentionTexts(record, code);
  return {
    code,
    message,
    done: describeChanges(record, texts),
    safe: texts.safe,
    next: `${remedy} ${texts.retiring?.advice ?? retryAdvice(record)}`,
    since: now.toISOString(),
    resume: record.status,
  };
}

/** Texts for a vault secret whose new value came with the request. It has no issuer, so no credential was created. */
const VAULT_SECRET_TEXTS: AttentionTexts = {
  created: "",
  safe: "The version with the old value is still in the vault and can be read.",
};

function describeChanges(
  { publications, attempts, consumers = [] }: RotationRecord,
  { created, retiring }: AttentionTexts,
): string {
  const written = publications.filter(({ state }) => state === "written" || state === "writing").map(placeOf);
  const restored = publications.filter(({ state }) => state === "restored").map(placeOf);
  const removed = attempts.flatMap(({ state, keyId }) => (state === "removed" && keyId ? [keyId] : []));
  const refreshed = consumers.filter(isToRestore).map(({ kind, name }) => `${kind} ${name}`);
  const restoredConsumers = consumers
    .filter(({ state }) => state === "restored")
    .map(({ kind, name }) => `${kind} ${name}`);
  return [
    ...(created === "" ? [] : [created]),
    written.length > 0 ? `The new value was written to ${written.join(", ")}.` : "No vault holds the new value.",
    ...(refreshed.length > 0 ? [`Refreshed to take it: ${refreshed.join(", ")}.`] : []),
    ...(restored.length > 0 ? [`${restored.join(", ")} got the previous value again.`] : []),
    ...(restoredConsumers.length > 0
      ? [`Consumers with the previous value again: ${restoredConsumers.join(", ")}.`]
      : []),
    ...(removed.length > 0 ? [`Created and removed again: ${removed.join(", ")}.`] : []),
    ...(retiring ? [retiring.state] : []),
  ].join(" ");
}

function retryAdvice({ ending }: RotationRecord): string {
  return ending
    ? "Then retry this rotation, which continues the rollback."
    : "Then retry this rotation, or cancel it, which rolls everything back.";
}
