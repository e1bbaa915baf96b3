import { Button, Field, Input, Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import type { ReactNode } from "react";
import { useMay } from "../../api/access.ts";
import { api, type Schemas } from "../../api/client.ts";
import { Card } from "../../parts/card.tsx";
import { Instant } from "../../parts/instant.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { View } from "../../parts/view.tsx";
import { Verification } from "./verification.tsx";

type Entry = Schemas["AuditEntry"];

const useStyles = makeStyles({
  filters: { display: "flex", flexWrap: "wrap", gap: tokens.spacingHorizontalM, alignItems: "flex-end" },
  link: { marginRight: tokens.spacingHorizontalM },
  json: { whiteSpace: "pre-wrap", overflowWrap: "anywhere", margin: 0 },
});

const FILTERS = [
  ["event_type", "Event", "text"],
  ["actor", "Actor", "text"],
  ["start_date", "From", "date"],
  ["end_date", "Until", "date"],
] as const;

/** Who did what, when, and whether the log is whole. */
export default function Audit() {
  const may = useMay();
  return (
    <View title="Audit log">
      {may("verifyAudit") && (
        <Card title="Verification">
          <Verification />
        </Card>
      )}
      <Card title="Entries">
        <Entries />
      </Card>
    </View>
  );
}

const COLUMNS: Column<Entry>[] = [
  { title: "When", cell: ({ occurredAt }) => <Instant at={occurredAt} /> },
  { title: "Event", cell: ({ eventType }) => eventType },
  { title: "Outcome", cell: ({ outcome }) => outcome },
  { title: "Actor", cell: ({ actor, address }) => `${actor} ${address ?? ""}` },
  { title: "Target", cell: ({ target }) => target && `${target.type} ${target.id}` },
  { title: "Details", wide: true, cell: detailsOf },
];

function Entries() {
  const styles = useStyles();
  const may = useMay();
  const [params, setParams] = useSearchParams();
  const query = Object.fromEntries(FILTERS.flatMap(([name]) => (params.get(name) ? [[name, params.get(name)!]] : [])));
  const list = api.useInfiniteQuery(
    "get",
    "/audit/entries",
    { params: { query: { limit: 100, ...query } } },
    BY_CURSOR,
  );
  return (
    <>
      <form
        className={styles.filters}
        onSubmit={(event) => {
          event.preventDefault();
          const form = new FormData(event.currentTarget);
          setParams(Object.fromEntries([...form].filter(([, value]) => value !== "") as [string, string][]));
        }}
      >
        {FILTERS.map(([name, label, type]) => (
          <Field key={name} label={label} size="small">
            <Input size="small" name={name} type={type} defaultValue={params.get(name) ?? ""} />
          </Field>
        ))}
        <Button size="small" type="submit">
          Filter
        </Button>
      </form>
      <PagedTable of={list} columns={COLUMNS} keyOf={({ id }) => id} label="Entries" none="There is none." />
      {may("exportAudit") && (
        <Text>
          These as{" "}
          {(["json", "csv", "pdf"] as const).map((format) => (
            <Link
              key={format}
              className={styles.link}
              href={`/audit/export?${new URLSearchParams({ ...query, format })}`}
            >
              {format.toUpperCase()}
            </Link>
          ))}
        </Text>
      )}
    </>
  );
}

function detailsOf({ details, before, after, count }: Entry) {
  const known = Object.entries({ details, before, after }).filter(([, value]) => value !== undefined && value !== null);
  if (count === 1 && known.length === 0) return null;
  return (
    <>
      {count > 1 && <Text block>{count} times</Text>}
      {known.map(([name, value]) => (
        <Json key={name}>
          {name} {JSON.stringify(value)}
        </Json>
      ))}
    </>
  );
}

function Json({ children }: { children: ReactNode }) {
  const styles = useStyles();
  return <pre className={styles.json}>{children}</pre>;
}
