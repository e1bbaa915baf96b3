import { CloudFailure } from "../platform/azure/failure.ts";
import { DAY_MS, DAY_SECONDS, HOUR_SECONDS } from "../platform/time.ts";
import { heldValue } from "./held-copies.ts";
import { newValue } from "./new-value.ts";
import { isPassing, signInUnclear } from "./problems.ts";
import { inspectPlace, placeOf } from "./publications.ts";
import { clientSecretOf, isVaultSecret, type RotationConsumer, type RotationRecord } from "./rotation.ts";
import type { StepContext } from "./step-context.ts";
import { checkConsumers, currentConsumers, isUncheckable } from "./steps/check-consumers.ts";
import { isCertain, placeKey, type Target } from "./targets.ts";

/**
 * Consecutive transient failures (about 20 minutes) that are retried before users are notified. Must be less than
 * `MAX_FAILURES`, after which the step gives up.
 */
const RETRIED_FAILURES = 7;

/** The reasons that keep the old value from being retired. */
export interface Conditions {
  /** Sentences for users. Empty if nothing prevents the end of the overlap period. */
  reasons: string[];
  /** Seconds until the next check. */
  againSeconds: number;
  /** The consumers with the value that each has now. */
  consumers: RotationConsumer[];
}

/**
 * Returns the reasons why the old value can't be retired yet.
 *
 * @param byPerson - A user asks for it and vouches for the consumers that can't be checked.
 * @throws {CloudFailure} transient, until `RETRIED_FAILURES` of them occurred in a row.
 */
export async function reasonsAgainstEnd(context: StepContext, byPerson: boolean): Promise<Conditions> {
  try {
    const places = await fromPlaces(context);
    const directory = isVaultSecret(context.record) ? [] : await fromDirectory(context);
    const { reasons, consumers } = await fromConsumers(context, byPerson);
    return {
      reasons: [...places, ...directory, ...reasons, ...(await fromLogs(context))],
      consumers,
      againSeconds: DAY_SECONDS,
    };
  } catch (error) {
    const failure = lastingFailure(context, error);
    const reason = `The service can't read now which places and consumers hold the new secret: ${failure.message} ${failure.remedy}`;
    const againSeconds = isPassing(failure) ? HOUR_SECONDS : DAY_SECONDS;
    return { reasons: [reason], consumers: context.record.consumers ?? [], againSeconds };
  }
}

/**
 * Returns a failure that users must be notified of.
 *
 * @throws the error itself if it is not a cloud failure, or if it is transient, so that it is retried within minutes.
 */
export function lastingFailure({ record }: StepContext, error: unknown): CloudFailure {
  if (!(error instanceof CloudFailure) || (isPassing(error) && record.failures < RETRIED_FAILURES)) throw error;
  return error;
}

async function fromPlaces(context: StepContext): Promise<string[]> {
  const { publications } = context.record;
  const reasons: string[] = [];
  if (!publications.some(({ kind, state }) => kind !== "handover" && state === "written")) {
    reasons.push(
      "The new secret was handed over and written to no known place, so the service can't see whether it is in use.",
    );
  }
  const value = await heldValue(context);
  for (const publication of publications) {
    if (publication.kind === "handover") continue;
    const { holds } = await inspectPlace(context, publication, value);
    if (holds !== "new") reasons.push(`${placeOf(publication)} no longer holds the new secret.`);
  }
  return reasons;
}

async function fromDirectory(context: StepContext): Promise<string[]> {
  const { deps, record } = context;
  const { appId, objectId, oldKeyId } = clientSecretOf(record);
  const app = await deps.graph.application({ objectId });
  if (app === undefined) return ["The application is no longer in the directory."];
  const reasons: string[] = [];
  if (!app.passwords.some(({ keyId }) => keyId === record.newKeyId)) {
    reasons.push(`The new secret ${record.newKeyId} is not in the directory.`);
  }
  const value = await newValue(context);
  const signedIn = value === undefined ? undefined : (await deps.signIn(appId, value)).kind;
  if (signedIn === "unclear") throw signInUnclear(appId);
  if (signedIn !== "accepted") reasons.push("The last sign-in with the new secret was not accepted.");
  // Otherwise an attacker with a copy of a compromised secret could keep the secret valid by storing it in a vault.
  if (record.reason === "compromised") return reasons;
  const written = new Set(record.publications.map(placeKey));
  const left = (await deps.matches.targetsOf(app, oldKeyId)).filter((target) => !written.has(placeKey(target)));
  return [...reasons, ...left.flatMap((target) => notWritten(record, target))];
}

function notWritten({ updateKeyVaults }: RotationRecord, target: Target): string[] {
  const place = placeOf(target);
  if (!isCertain(target))
    return target.confidence === "likely" ? [`${place} is likely to hold the old secret and was not written.`] : [];
  if (target.standing !== "new" || !updateKeyVaults) return [`${place} holds the old secret and was not written.`];
  return [
    `${place} holds the old secret, is new to this service and was not written. Confirm the match to have it written, or finish the rotation with force to remove the old secret anyway.`,
  ];
}

/**
 * Returns reasons from the consumers. For a client secret all known consumers count, also excluded ones, because they fail
 * without the old secret. For a vault secret only included consumers count, because the old versions stay readable.
 */
async function fromConsumers(context: StepContext, byPerson: boolean): Promise<Omit<Conditions, "againSeconds">> {
  const known = await currentConsumers(context);
  const counted = isVaultSecret(context.record) ? known.filter(({ included }) => included) : known;
  const seen = await checkConsumers(context, counted);
  const reasons = seen.flatMap((one) => {
    const { kind, name, holds, problem } = one;
    if (holds === "new" || holds === "gone") return [];
    if (isUncheckable(one))
      return byPerson
        ? []
        : [
            `The service can't see which value ${kind} ${name} has. Check that it has the new value, then finish the rotation.`,
          ];
    const why = problem === undefined ? "" : ` ${problem}`;
    return [`${kind} ${name} ${holds === "old" ? "still holds" : "may still hold"} the old value.${why}`];
  });
  return { reasons, consumers: known.map((one) => seen.find((other) => other === one || sameAs(other, one)) ?? one) };
}

/** The old secret counts as unused if no sign-in was logged for this long. */
const UNUSED_MS = DAY_MS;

/**
 * Returns reasons from reads and sign-ins in logs. Logs can only delay the removal: an empty log does not prove that the old
 * value is unused.
 */
async function fromLogs({ deps: { usage }, record, now }: StepContext): Promise<string[]> {
  const reasons: string[] = [];
  for (const publication of record.publications) {
    const { vaultName, secretName, kind, writtenVersion: version, writtenAt } = publication;
    if (kind === "handover" || version === undefined || writtenAt === undefined) continue;
    const written = { vaultName, secretName, version, since: new Date(writtenAt) };
    for (const { caller, version: old, at } of await usage.readersOfOldVersion(written))
      reasons.push(
        `${caller} read the old version ${old} of ${placeOf(publication)} at ${instantText(at)}, after the new one was written, and has not read that one since.`,
      );
  }
  if (isVaultSecret(record) || record.reason === "compromised") return reasons;
  const { appId, oldKeyId: keyId } = clientSecretOf(record);
  const at = await usage.lastSignIn({ appId, keyId });
  if (at !== undefined && now().getTime() - at.getTime() < UNUSED_MS)
    reasons.push(`The old secret ${keyId} signed in at ${instantText(at)}, less than 24 hours ago.`);
  return [...reasons, ...(await usage.unreadSignIns())];
}

const instantText = (at: Date): string => `${at.toISOString().slice(0, 19)}Z`;

const sameAs = (a: RotationConsumer, b: RotationConsumer): boolean => a.id === b.id && placeOf(a) === placeOf(b);
