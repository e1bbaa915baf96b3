import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { TextField } from "../../parts/fields.tsx";
import { typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { FilterCheckbox } from "./filter-checkbox.tsx";

type Subscription = Schemas["Subscription"];

const SOURCES = {
  api: "Added here",
  configuration: "App setting",
  discovered: "Discovered",
} as const satisfies Record<Subscription["source"], string>;
const SCAN_STATUSES = {
  queued: "Queued",
  running: "In progress",
  completed: "Completed",
  partial: "Partially completed",
  failed: "Failed",
  timedOut: "Timed out",
  cancelled: "Canceled",
} as const satisfies Record<Schemas["Scan"]["status"], string>;
const STEPS = {
  subscriptionReadable: "Read subscription",
  vaultsListable: "List vaults",
  secretsListable: "List secrets",
  keysListable: "List keys",
  certificatesListable: "List certificates",
} as const satisfies Record<Schemas["ConnectionTest"]["steps"][number]["step"], string>;

/** The subscriptions, and forms that add, test and remove one. */
export function Subscriptions() {
  const [params] = useSearchParams();
  const unread = params.get("unread") === "true";
  const list = api.useInfiniteQuery(
    "get",
    "/subscriptions",
    { params: { query: { limit: 100, ...(unread && { unread: "true" }) } } },
    BY_CURSOR,
  );
  const listFailure = list.data?.pages[0]?.lastFailure;
  const columns: Column<Subscription>[] = [
    { title: "Name", cell: ({ name }) => name },
    { title: "Subscription ID", cell: ({ subscriptionId }) => subscriptionId },
    { title: "Source", cell: ({ source }) => SOURCES[source] },
    { title: "Status", cell: statusOf },
    { title: "Vaults", cell: ({ counts }) => counts.vaults.toLocaleString() },
    { title: "Last scan", cell: ({ lastScan }) => lastScan && SCAN_STATUSES[lastScan.status] },
    {
      title: "Access problems",
      cell: ({ lastFailure }) => lastFailure && `${lastFailure.message} ${lastFailure.remedy}`,
    },
    { title: "Added", cell: ({ addedAt }) => (addedAt === null ? "" : <Instant at={addedAt} relative />) },
    { title: "", cell: (one) => <Actions subscription={one} /> },
  ];
  return (
    <>
      <div>
        <Operate
          operation="addSubscription"
          title="Add subscription"
          action="Add subscription"
          submit={(form, add) =>
            add({ body: { subscriptionId: typed(form, "subscriptionId"), name: typed(form, "name") } })
          }
        >
          <TextField name="subscriptionId" label="Subscription ID" hint="A GUID" required />
          <TextField name="name" label="Name" required />
        </Operate>
      </div>
      <FilterCheckbox name="unread" label="Only subscriptions that could not be read" />
      {listFailure && (
        <Text>
          The list of subscriptions could not be read: {listFailure.message} {listFailure.remedy}
        </Text>
      )}
      <PagedTable
        of={list}
        columns={columns}
        keyOf={({ subscriptionId }) => subscriptionId}
        label="Subscriptions"
        empty={
          unread
            ? "No known subscription failed at its last scan."
            : "No subscriptions yet. Start a scan to list the subscriptions that the service can read, or add one."
        }
      />
    </>
  );
}

function statusOf({ state, watched, outOfScopeSince }: Subscription) {
  if (state === "removing") return "Removal in progress. If this does not change, remove the subscription again.";
  if (watched) return "Monitored";
  return (
    <>
      Not monitored{" "}
      {outOfScopeSince !== null && (
        <>
          since <Instant at={outOfScopeSince} />
        </>
      )}
    </>
  );
}

function Actions({ subscription: { subscriptionId, name, source } }: { subscription: Subscription }) {
  const params = { path: { subscription_id: subscriptionId } };
  return (
    <>
      <Operate
        operation="testSubscription"
        title="Test access"
        about={name}
        action="Test access"
        appearance="transparent"
        submit={async (_, test) => <Outcome of={await test({ params })} />}
      >
        <Text>Checks whether the service's identity can list the vaults of {name}.</Text>
      </Operate>
      {source === "api" && (
        <Operate
          operation="removeSubscription"
          title="Remove"
          about={name}
          action="Remove subscription"
          appearance="transparent"
          submit={(_, remove) => remove({ params })}
        >
          <Text>
            Removes {name} from the list of added subscriptions. The service keeps monitoring it if the setting Monitor
            all subscriptions (watchAll) is on. Otherwise its assets leave the inventory.
          </Text>
        </Operate>
      )}
    </>
  );
}

const Outcome = ({ of: { steps } }: { of: Schemas["ConnectionTest"] }) =>
  steps.map(({ step, resource, ok, detail, remedy }) => (
    <div key={`${step} ${resource}`}>
      {ok ? "✓" : "✗"} {STEPS[step]}: {resource} {detail} {remedy?.text}
    </div>
  ));
