import { Accordion, AccordionHeader, AccordionItem, AccordionPanel, Text } from "@fluentui/react-components";
import type { ReactNode } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { Replacements, ReplaceSecret } from "./replace-secret.tsx";

type Secret = Schemas["Secretless"]["secrets"][number];

const VERDICTS = {
  possible: "Can be replaced",
  partly: "Can be replaced for some consumers",
  blocked: "Can't be replaced",
  unknown: "Unknown",
} as const satisfies Record<Secret["verdict"], string>;

/** Says for each client secret of an application whether its consumers can work without it, with the plan folded. */
export function Secretless({ appId }: { appId: string }) {
  const params = { path: { app_id: appId } };
  const report = api.useQuery("get", "/api/automation/rotation/apps/{app_id}/secretless", { params });
  return (
    <QueryResult of={report}>
      {({ secrets, unknown }) => (
        <>
          {secrets.map((secret) => (
            <SecretVerdict key={secret.keyId} appId={appId} secret={secret} />
          ))}
          <Replacements appId={appId} />
          <Folded title={`What was not searched (${unknown.length})`}>
            {unknown.map(({ message, remedy }) => (
              <div key={message}>
                <Text>
                  {message} {remedy}
                </Text>
              </div>
            ))}
          </Folded>
        </>
      )}
    </QueryResult>
  );
}

function SecretVerdict({ appId, secret }: { appId: string; secret: Secret }) {
  const { keyId, displayName, verdict, reason, usage, consumers, plan, unknown } = secret;
  return (
    <div>
      <Text weight="semibold">
        {isolated(displayName ?? keyId)}: {VERDICTS[verdict]}
      </Text>
      <div>
        <Text>
          {reason}{" "}
          {usage.lastUsedAt !== null && (
            <>
              Last sign-in <Instant at={usage.lastUsedAt} relative />.{" "}
            </>
          )}
          {usage.idleDays === null
            ? usage.evidence
            : `The application did not sign in with it for ${counted(usage.idleDays, "day")}, as complete logs show. Sign-ins of users are not in these logs.`}
        </Text>
      </div>
      {unknown.map(({ code, message, remedy }) => (
        <div key={code}>
          <Text>
            {message} {remedy}
          </Text>
        </div>
      ))}
      <ReplaceSecret appId={appId} secret={secret} />
      {plan.length > 0 && (
        <Folded title={`Plan for ${counted(consumers.length, "consumer")}: ${counted(plan.length, "step")}`}>
          <ol>
            {plan.map(({ text, command, consumer }, index) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: the steps of a plan have no other identity than their order
              <li key={index}>
                <Text>
                  {consumers.length > 1 && consumer !== null && `${nameOf(secret, consumer)}: `}
                  {text}
                </Text>
                {command !== null && <Copyable label="Command" text={command} />}
              </li>
            ))}
          </ol>
        </Folded>
      )}
    </div>
  );
}

const nameOf = ({ consumers }: Secret, id: string): string =>
  isolated(consumers.find((one) => one.id === id)?.name ?? id);

function Folded({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Accordion collapsible>
      <AccordionItem value="content">
        <AccordionHeader>{title}</AccordionHeader>
        <AccordionPanel>{children}</AccordionPanel>
      </AccordionItem>
    </Accordion>
  );
}
