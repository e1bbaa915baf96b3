import { Link, Text } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { createHref } from "./address.ts";
import { evidenceText, kindOf, REFRESHES, scopeText } from "./dependency-texts.ts";
import { isolated } from "./isolated.ts";
import { textsOfKind } from "./key-credential.ts";

/**
 * The result of a dry run, in the forms that start a rotation: the steps, the vault secrets that the rotation would write, and
 * the effect on each consumer.
 */
export function RotationPlan({ of: plan }: { of: Schemas["Rotation"] }) {
  const { plan: steps, needs, targets, consumers, notes, coverage, reasons } = plan;
  const breaking = consumers.filter(({ how, included }) => included && how === "willBreak");
  return (
    <>
      <Lines title="The rotation can't start yet" lines={needs.map(({ message }) => message)} />
      <Text weight="semibold">Steps</Text>
      <ol>
        {steps.map(({ step, text }) => (
          <li key={step}>{text}</li>
        ))}
      </ol>
      {breaking.length > 0 && (
        <Text block weight="semibold">
          This rotation breaks {breaking.map(({ name }) => isolated(name)).join(", ")}.
        </Text>
      )}
      <Lines
        title="Key Vault secrets to update"
        none="The rotation updates no key vault secret."
        lines={targets.map(targetText)}
      />
      <Lines title="Consumers" none="No consumers found." lines={consumers.map(consumerText)} />
      <NotWritten of={plan} />
      <Lines
        title={
          plan.keyKind === null
            ? "The old secret can't be deleted yet, because"
            : "The rotation can't finish yet, because"
        }
        lines={reasons}
      />
      <NotSearched coverage={coverage} />
      <Lines title="Differences from your input" lines={notes} />
    </>
  );
}

/** How sure it is that a key vault secret stores the application's secret. */
const CONFIDENCE = { certain: "proven", likely: "likely", possible: "possible" } as const;

/** Why a key vault secret is not updated, and what to do about it. */
const LEFT_OUT = {
  newPlace:
    "stores the old secret, but no user confirmed it and no earlier rotation updated it. Confirm the match if it belongs to the application.",
  uncertain: "may store the old secret. Test or confirm the match if it belongs to the application.",
  notNamed: "is not in the list of secrets to update.",
  unreadable:
    "can't be read. Assign the role Key Vault Secrets Officer on the vault to the service's identity, or allow the service in the vault's firewall.",
  unanswered:
    "may store the old secret, but its vault gave no clear answer. Test or confirm the match if it belongs to the application.",
} as const satisfies Record<NonNullable<Schemas["Rotation"]["notUpdated"][number]["reason"]>, string>;

/** The reasons with another text if the rotation replaces a key of an Azure resource. A key has no matches to confirm. */
const KEY_LEFT_OUT: Partial<Record<keyof typeof LEFT_OUT, string>> = {
  newPlace: "stores the old key, and no earlier rotation updated it. Select it as a key vault secret to update.",
  uncertain: "contains a key of the resource and is not updated.",
  unanswered: "may store a key of the resource, but its vault gave no clear answer.",
};

/** The reasons with another text after the old client secret was deleted. A test then can't recognize its value. */
const DELETED_LEFT_OUT: Partial<Record<keyof typeof LEFT_OUT, string>> = {
  newPlace: "stored the old secret, but no user confirmed it and no earlier rotation updated it.",
  uncertain: "may store the old secret.",
  unanswered: "may store the old secret, but its vault gave no clear answer.",
};

/** Returns the number of vault secrets that are not updated and that a test or a user can still confirm. */
export const possibleCopies = (notUpdated: Schemas["Rotation"]["notUpdated"]): number =>
  notUpdated.filter(({ reason }) => ["newPlace", "uncertain", "unanswered"].includes(reason ?? "")).length;

/** Where consumers could not be searched, with the link to the coverage of the dependencies, which says how to fix it. */
export const NotSearched = ({ coverage }: Pick<Schemas["Rotation"], "coverage">) =>
  coverage.length > 0 && (
    <>
      <Lines title="Could not be searched for consumers" lines={coverage.map(scopeText)} />
      <Link href={createHref("/dependencies")}>How to complete the search</Link>
    </>
  );

/** The vault secrets that a rotation does not write, with a link to confirm those that belong to the application. */
export function NotWritten({ of: { appId, keyKind, notUpdated, steps } }: { of: Schemas["Rotation"] }) {
  const canBeConfirmed = possibleCopies(notUpdated) > 0;
  const isOldDeleted = appId !== null && steps.some(({ name, status }) => name === "revoke" && status === "done");
  return (
    <>
      <Lines
        title={`Not updated, but may store the old ${textsOfKind(keyKind, "key", "login") ?? "secret"}`}
        lines={notUpdated.map(({ vaultName, secretName, confidence, reason }) => {
          const texts = keyKind !== null ? KEY_LEFT_OUT : isOldDeleted ? DELETED_LEFT_OUT : {};
          const text = reason && (texts[reason] ?? LEFT_OUT[reason]);
          return `${vaultName}/${secretName} (${CONFIDENCE[confidence]} match)${text === null ? "" : `: ${text}`}`;
        })}
      />
      {isOldDeleted && canBeConfirmed && (
        <Text block>
          The old secret is deleted and no longer signs in. A test can't find its copies, because a test compares values
          with the current secrets only. Compare the evidence on the application's page. If one of these stores the
          secret, confirm the match and rotate again, or save the new secret there.
        </Text>
      )}
      {appId !== null && canBeConfirmed && (
        <Link href={createHref(`/rotation/apps/${appId}`)}>
          {isOldDeleted
            ? "Matches of the application with their evidence"
            : "Test or confirm the matches of the application"}
        </Link>
      )}
    </>
  );
}

/** Returns a written secret as text. `handover`: a secret in a separate vault from which the user collects the new value. */
const targetText = ({ vaultName, secretName, kind }: Schemas["RotationTarget"]): string =>
  `${vaultName}/${secretName}${kind === "handover" ? " (collect the new value here)" : ""}`;

/** How a consumer gets the new value. */
const HOW = { ...REFRESHES, action: "the rotation updates or restarts it" } as const;

/** Returns a consumer as text: name, kind, environment and the setting that references the secret, then the effect on it. */
const consumerText = ({ name, kind, environment, evidence, how, included }: Schemas["RotationConsumer"]): string =>
  `${isolated(name)} (${kindOf({ kind, environment })}, ${evidenceText(evidence)}): ${included ? HOW[how] : "excluded, not updated"}`;

/** A list with a title. Renders nothing if the list is empty and `none` is not given. */
export function Lines({ title, lines, none }: { title: string; lines: string[]; none?: string }) {
  if (lines.length === 0 && none === undefined) return null;
  return (
    <>
      <Text weight="semibold" block>
        {title}
      </Text>
      {lines.length === 0 ? (
        <Text block>{none}</Text>
      ) : (
        <ul>
          {[...new Set(lines)].map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
    </>
  );
}
