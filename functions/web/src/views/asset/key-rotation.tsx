import { Badge, Link, Text } from "@fluentui/react-components";
import { useQueryClient } from "@tanstack/react-query";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { Card } from "../../parts/card.tsx";
import { Copyable } from "../../parts/copyable.tsx";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { kindOf } from "../../parts/dependency-texts.ts";
import { ApiSentence, Instant } from "../../parts/instant.tsx";
import { isolated } from "../../parts/isolated.ts";
import { Operate } from "../../parts/operate.tsx";
import { pollUntil } from "../../parts/polling.ts";
import { QueryResult } from "../../parts/query-result.tsx";
import { Lines } from "../../parts/rotation-plan.tsx";
import { Unavailable, useWhyNot } from "../../parts/unavailable.tsx";

type Rotation = Schemas["KeyRotation"];
type Consumer = Schemas["KeyConsumer"];

const ENDED: readonly Rotation["status"][] = ["done", "failed", "superseded"];

/** The action that rotates a key. If the user can't rotate it, says why. */
export function RotateKeyAction({ assetId, name }: { assetId: string; name: string }) {
  const whyNot = useWhyNot()("rotateKey");
  const queries = useQueryClient();
  if (whyNot !== undefined) return <Unavailable title="Rotate key" reason={whyNot} />;
  const requestOf = (dryRun: boolean) => ({ params: { path: { asset_id: assetId } }, body: { dryRun } });
  return (
    <Operate
      operation="rotateKey"
      title="Rotate key"
      about={name}
      action="Rotate key"
      appearance="primary"
      preview={{
        action: "Preview rotation",
        isRequired: true,
        load: async (_, rotate) => <Plan of={await rotate(requestOf(true))} />,
      }}
      submit={async (_, rotate) => {
        await rotate(requestOf(false));
        await queries.invalidateQueries({ predicate: ({ queryKey: [, path] }) => String(path).includes("/keys/") });
      }}
    >
      <Text>
        Adds a version to the key, and then checks until all resources that encrypt data with the key use it. The
        earlier version stays enabled, and no resource is changed.
      </Text>
    </Operate>
  );
}

/** The result of a dry run. */
function Plan({ of: { needs, steps, consumers, mayUse, keepOldVersion } }: { of: Rotation }) {
  return (
    <>
      <Lines title="The rotation can't start yet" lines={needs} />
      <Lines title="Steps" lines={steps.map(({ text }) => text)} />
      <Lines
        title="Consumers"
        none="No consumers found."
        lines={consumers.map(
          (one) => `${isolated(one.name)} (${kindOf({ ...one, environment: null })}): ${planText(one)}`,
        )}
      />
      {mayUse !== null && mayUse > 0 && (
        <Text block>{mayUse.toLocaleString()} more have access, but no use of the key was found.</Text>
      )}
      <Lines title="The earlier version must stay enabled, because" lines={keepOldVersion} />
    </>
  );
}

function planText({ state, pickUpSeconds, message }: Consumer): string {
  if (state === "pinned") return "pinned to a version, so you update it with a command";
  if (state === "unlinked") return "no longer uses the key";
  if (state === "unknown" || pickUpSeconds === null) return message ?? "the version in use is unknown";
  return `uses the new version by itself within ${Math.round(pickUpSeconds / 3600)} h`;
}

/** The card of a key's page with its latest rotation. Null if the key was never rotated. */
export function KeyRotation({ assetId }: { assetId: string }) {
  return useMay()("listKeyRotations") ? <Latest assetId={assetId} /> : null;
}

function Latest({ assetId }: { assetId: string }) {
  const rotations = api.useQuery(
    "get",
    "/api/automation/keys/rotations",
    { params: { query: { assetId, limit: 1 } } },
    pollUntil<Schemas["KeyRotationList"]>(({ items }) => items.every(({ status }) => ENDED.includes(status))),
  );
  if (rotations.data?.items.length === 0) return null;
  return (
    <Card title="Key rotation">
      <QueryResult of={rotations}>{({ items: [latest] }) => latest && <Steps of={latest} />}</QueryResult>
    </Card>
  );
}

const STATUSES: Record<Rotation["status"], { text: string; color: "success" | "danger" | "severe" | "informative" }> = {
  planned: { text: "Planned", color: "informative" },
  rotating: { text: "Adding a version", color: "informative" },
  waiting: { text: "Waiting for consumers", color: "informative" },
  late: { text: "Late", color: "severe" },
  done: { text: "Done", color: "success" },
  failed: { text: "Failed", color: "danger" },
  superseded: { text: "Replaced by a later rotation", color: "informative" },
};

function Steps({ of: { status, createdAt, steps, consumers, failure, keepOldVersion } }: { of: Rotation }) {
  return (
    <>
      <Text>
        <Badge appearance="tint" color={STATUSES[status].color}>
          {STATUSES[status].text}
        </Badge>{" "}
        {createdAt && (
          <>
            Started <Instant at={createdAt} relative />.
          </>
        )}
      </Text>
      <ol aria-label="Steps of the rotation">
        {steps.map(({ step, text, at }) => (
          <li key={step}>
            <ApiSentence text={text} /> {at && <Instant at={at} relative />}
          </li>
        ))}
      </ol>
      {failure && (
        <Text block>
          {failure.message} {failure.remedy}
        </Text>
      )}
      {consumers.length > 0 && (
        <DataTable items={consumers} columns={COLUMNS} keyOf={({ id }) => id} label="Consumers of the key" />
      )}
      <Lines title="Keep the earlier version enabled, because" lines={keepOldVersion} />
    </>
  );
}

const STATES: Record<Consumer["state"], { text: string; color: "success" | "severe" | "informative" }> = {
  followed: { text: "new version", color: "success" },
  waiting: { text: "earlier version, in time", color: "informative" },
  late: { text: "earlier version, late", color: "severe" },
  pinned: { text: "pinned to a version", color: "severe" },
  unknown: { text: "unknown", color: "informative" },
  unlinked: { text: "no longer uses the key", color: "informative" },
};

const COLUMNS: Column<Consumer>[] = [
  { title: "Consumer", cell: (one) => `${isolated(one.name)} (${kindOf({ ...one, environment: null })})` },
  {
    title: "Uses",
    cell: ({ state }) => (
      <Badge appearance="tint" color={STATES[state].color}>
        {STATES[state].text}
      </Badge>
    ),
  },
  { title: "Due", cell: ({ dueAt }) => dueAt && <Instant at={dueAt} /> },
  {
    title: "Remediation",
    wide: true,
    cell: ({ command, message, documentation }) => (
      <>
        {message && <ApiSentence text={message} />}
        {command && <Copyable label="Azure CLI command" text={command} />}
        {command && documentation && (
          <Link href={documentation} target="_blank" rel="noreferrer">
            Documentation
          </Link>
        )}
      </>
    ),
  },
];
