import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { type Column, DataTable } from "../../parts/data-table.tsx";
import { Instant } from "../../parts/instant.tsx";
import { QueryResult } from "../../parts/query-result.tsx";

type Stream = Schemas["AuditStream"];

const DESTINATIONS: Record<Stream["destination"], string> = {
  webhook: "Webhook",
  logsIngestion: "Log Analytics",
  eventHubs: "Event Hubs",
};
const STATES: Record<Stream["state"], string> = {
  active: "Active",
  failing: "Failing",
  disabled: "Paused",
  broken: "Stopped",
};

const COLUMNS: Column<Stream>[] = [
  { title: "Name", cell: ({ name }) => name },
  {
    title: "Destination",
    breaks: true,
    cell: ({ destination, host, endpoint }) => `${DESTINATIONS[destination]}: ${host ?? endpoint ?? ""}`,
  },
  {
    title: "Status",
    cell: ({ state, error }) => (
      <>
        {STATES[state]}
        {error !== null && (
          <Text block size={200}>
            {error}
          </Text>
        )}
      </>
    ),
  },
  { title: "Not sent", cell: ({ lag }) => lag.entries ?? "Unknown" },
  { title: "Oldest not sent", cell: ({ lag }) => lag.since && <Instant at={lag.since} /> },
  { title: "Last sent", cell: ({ lastSentAt }) => lastSentAt && <Instant at={lastSentAt} /> },
];

/** The streams of the audit log to a SIEM, with their state. They are created by the API. */
export function Streams() {
  const streams = api.useQuery("get", "/audit/streams");
  return (
    <QueryResult of={streams}>
      {({ items }) =>
        items.length === 0 ? (
          <Text>No streams. Create one with POST /audit/streams to send the audit log to a SIEM.</Text>
        ) : (
          <DataTable items={items} columns={COLUMNS} keyOf={({ id }) => id} label="Streams" />
        )
      }
    </QueryResult>
  );
}
