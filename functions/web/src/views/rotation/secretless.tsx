import { Accordion, AccordionHeader, AccordionItem, AccordionPanel, Link, Text } from "@fluentui/react-components";
import { Fragment, type ReactNode, useRef, useState } from "react";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId } from "../../parts/asset-name.ts";
import { Copyable } from "../../parts/copyable.tsx";
import { Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { counted } from "../../parts/plural.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { Replacements, ReplaceSecret } from "./replace-secret.tsx";

type Secret = Schemas["Secretless"]["secrets"][number];

/** Says for each client secret of an application whether its consumers can work without it, with the plan folded. */
export function Secretless({ appId }: { appId: string }) {
  const params = { path: { app_id: appId } };
  const report = api.useQuery("get", "/api/automation/rotation/apps/{app_id}/secretless", { params });
  const [isOpen, setOpen] = useState(false);
  const notSearched = useRef<HTMLDivElement>(null);
  const showNotSearched = () => {
    setOpen(true);
    notSearched.current?.scrollIntoView();
  };
  return (
    <QueryResult of={report}>
      {({ secrets, unknown }) => (
        <>
          {secrets.map((secret) => (
            <SecretVerdict
              key={secret.keyId}
              appId={appId}
              secret={secret}
              notSearched={unknown.length}
              showNotSearched={showNotSearched}
            />
          ))}
          <Replacements appId={appId} />
          {unknown.length > 0 && (
            <div ref={notSearched}>
              <Folded title={notSearchedTitle(unknown.length)} isOpen={isOpen} setOpen={setOpen}>
                {unknown.map(({ message, remedy }) => (
                  <div key={message}>
                    <Text>
                      {message} {remedy}
                    </Text>
                  </div>
                ))}
                <Link href={createHref("/dependencies")}>Coverage of the dependencies</Link>
              </Folded>
            </div>
          )}
        </>
      )}
    </QueryResult>
  );
}

const notSearchedTitle = (count: number): string => `Not searched or unknown: ${counted(count, "item")}`;

/** Returns the verdict on a secret, which covers its known consumers only. */
function verdictOf({ verdict, consumers: { length } }: Secret): string {
  switch (verdict) {
    case "possible":
      return length === 1
        ? "the 1 known consumer can sign in without it"
        : `all ${length} known consumers can sign in without it`;
    case "partly":
      return `some of the ${length} known consumers can sign in without it`;
    case "blocked":
      return "can't be replaced";
    case "unknown":
      return "unknown whether it can be replaced";
  }
}

function SecretVerdict({
  appId,
  secret,
  notSearched,
  showNotSearched,
}: {
  appId: string;
  secret: Secret;
  /** Number of sources and uses that are unknown for all secrets of the application. */
  notSearched: number;
  showNotSearched(): void;
}) {
  const { keyId, displayName, verdict, reason, usage, consumers, plan, places, unknown } = secret;
  const [isOpen, setOpen] = useState(false);
  const isOptimistic = verdict === "possible" || verdict === "partly";
  return (
    <div>
      <Text weight="semibold">
        Secret "{isolated(displayName ?? keyId)}": {verdictOf(secret)}.
      </Text>
      {isOptimistic && (notSearched > 0 || usage.idleDays === null) && (
        <Text block weight="semibold">
          Other programs may use the secret:{" "}
          {usage.idleDays === null && `sign-ins with it are unknown${notSearched > 0 ? ", and " : "."}`}
          {notSearched > 0 && (
            <>
              {counted(notSearched, "source or use is", "sources or uses are")} unknown.{" "}
              <Link onClick={showNotSearched}>Show them</Link>
            </>
          )}
        </Text>
      )}
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
            {message} {remedy}{" "}
            {code === "entitledIdentities" &&
              places.map(({ assetId }, index) => (
                <Fragment key={assetId}>
                  {index > 0 && ", "}
                  <Link href={createHref(`/dependencies/${encodeURIComponent(assetId)}`)}>
                    Blast radius of {titleOfId(assetId)}
                  </Link>
                </Fragment>
              ))}
          </Text>
        </div>
      ))}
      <ReplaceSecret appId={appId} secret={secret} />
      {plan.length > 0 && (
        <Folded
          title={`Plan for ${counted(consumers.length, "known consumer")}: ${counted(plan.length, "step")}`}
          isOpen={isOpen}
          setOpen={setOpen}
        >
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

function Folded({
  title,
  isOpen,
  setOpen,
  children,
}: {
  title: string;
  isOpen: boolean;
  setOpen(isOpen: boolean): void;
  children: ReactNode;
}) {
  return (
    <Accordion collapsible openItems={isOpen ? ["content"] : []} onToggle={() => setOpen(!isOpen)}>
      <AccordionItem value="content">
        <AccordionHeader>{title}</AccordionHeader>
        <AccordionPanel>{children}</AccordionPanel>
      </AccordionItem>
    </Accordion>
  );
}
