import { Text } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { isolated } from "./isolated.ts";

/** What a rotation would do: its steps, what is written, and what happens to each who uses it. */
export function RotationPlan({ of: plan }: { of: Schemas["Rotation"] }) {
  const { plan: steps, targets, consumers, notUpdated, notes, coverage, reasons } = plan;
  const breaking = consumers.filter(({ how, included }) => included && how === "willBreak");
  return (
    <>
      <Text weight="semibold">What would be done</Text>
      <ol>
        {steps.map(({ step, text }) => (
          <li key={step}>{text}</li>
        ))}
      </ol>
      {breaking.length > 0 && (
        <Text block weight="semibold">
          It would break {breaking.map(({ name }) => isolated(name)).join(", ")}.
        </Text>
      )}
      <Lines title="Written" none="No vault secret is written." lines={targets.map(targetText)} />
      <Lines title="Who uses it" none="Nobody is known to use it." lines={consumers.map(consumerText)} />
      <Lines
        title="Not written, though they may hold the old one"
        lines={notUpdated.map(
          (one) => `${one.vaultName}/${one.secretName} (${one.confidence}): confirm the match first`,
        )}
      />
      <Lines title="What stands against removing the old one" lines={reasons} />
      <Lines title="What could not be looked into" lines={coverage} />
      <Lines title="Decided otherwise than asked for" lines={notes} />
    </>
  );
}

const targetText = ({ vaultName, secretName, kind }: Schemas["RotationTarget"]): string =>
  `${vaultName}/${secretName}${kind === "handover" ? ", where people fetch it from" : ""}`;

const HOW = {
  automatic: "takes the new one by itself",
  action: "is told to take the new one",
  blind: "nobody can see when it takes the new one",
  willBreak: "goes on with the old one and breaks",
} as const;

const consumerText = ({ name, kind, environment, evidence, how, included }: Schemas["RotationConsumer"]): string =>
  `${isolated(name)} (${[kind, environment === null ? "" : isolated(environment), isolated(evidence)].filter(Boolean).join(", ")}): ${included ? HOW[how] : "left out"}`;

/** A titled list; nothing at all where it is empty and nothing is said of that. */
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
