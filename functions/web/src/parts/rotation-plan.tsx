import { Link, Text } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { createHref } from "./address.ts";
import { isolated } from "./isolated.ts";

/** The result of a dry run: the steps of the rotation, the vault secrets it writes, and the effect on each consumer. */
export function RotationPlan({ of: plan }: { of: Schemas["Rotation"] }) {
  const { plan: steps, targets, consumers, notes, coverage, reasons } = plan;
  const breaking = consumers.filter(({ how, included }) => included && how === "willBreak");
  return (
    <>
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
        title="Vault secrets to write"
        none="The rotation writes no vault secret."
        lines={targets.map(targetText)}
      />
      <Lines title="Consumers" none="No consumers found." lines={consumers.map(consumerText)} />
      <NotWritten of={plan} />
      <Lines title="Reasons why the old secret can't be removed" lines={reasons} />
      <Lines title="Scopes that could not be read" lines={coverage} />
      <Lines title="Differences from your request" lines={notes} />
    </>
  );
}

/** Why a vault secret is not written, and what to do about it. */
const LEFT_OUT = {
  newPlace:
    "it holds the old secret, but nobody confirmed it and no rotation wrote it. Confirm the match if it belongs to the application",
  uncertain: "it may hold the old secret. Verify or confirm the match",
  notNamed: "the request or policy does not name it",
  unreadable:
    "the vault denies access. Grant the service Key Vault Secrets Officer on it, or open the vault's firewall",
} as const satisfies Record<NonNullable<Schemas["Rotation"]["notUpdated"][number]["reason"]>, string>;

/** The vault secrets that a rotation leaves out, with the way to confirm those that belong to the application. */
export function NotWritten({ of: { appId, notUpdated } }: { of: Schemas["Rotation"] }) {
  const canBeConfirmed = notUpdated.some(({ reason }) => reason === "newPlace" || reason === "uncertain");
  return (
    <>
      <Lines
        title="Vault secrets that are not written (may hold the old secret)"
        lines={notUpdated.map(
          ({ vaultName, secretName, confidence, reason }) =>
            `${vaultName}/${secretName} (${confidence})${reason === null ? "" : `: ${LEFT_OUT[reason]}`}`,
        )}
      />
      {appId !== null && canBeConfirmed && (
        <Link href={createHref(`/rotation/apps/${appId}`)}>Confirm matches of the application</Link>
      )}
    </>
  );
}

const targetText = ({ vaultName, secretName, kind }: Schemas["RotationTarget"]): string =>
  `${vaultName}/${secretName}${kind === "handover" ? " (collect the new value here)" : ""}`;

const HOW = {
  automatic: "updates automatically",
  action: "the rotation updates it",
  blind: "update can't be observed",
  willBreak: "keeps the old value and breaks",
} as const;

const consumerText = ({ name, kind, environment, evidence, how, included }: Schemas["RotationConsumer"]): string =>
  `${isolated(name)} (${[kind, environment === null ? "" : isolated(environment), isolated(evidence)].filter(Boolean).join(", ")}): ${included ? HOW[how] : "excluded"}`;

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
