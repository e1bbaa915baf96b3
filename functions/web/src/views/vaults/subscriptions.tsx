import { Badge, Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { ButtonRow } from "../../parts/button-row.tsx";
import { TextField } from "../../parts/fields.tsx";
import { fieldText } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { counted, countUnlessUnread } from "../../parts/plural.ts";
import { useSearchParams } from "../../parts/router.tsx";
import { FilterCheckbox } from "./filter-checkbox.tsx";

type Subscription = Schemas["Subscription"];

const SOURCES = {
  api: "Added by a user",
  configuration: "Environment variable",
  discovered: "Found in Azure",
} as const satisfies Record<Subscription["source"], string>;
/** Steps of an access test. */
const STEPS = {
  subscriptionReadable: "Read subscription",
  vaultsListable: "List key vaults",
  secretsListable: "List secrets",
  keysListable: "List keys",
  certificatesListable: "List certificates",
} as const satisfies Record<Schemas["ConnectionTest"]["steps"][number]["step"], string>;

/** The card of the Vaults page with the subscriptions, and the forms that add, test and remove one. */
export function Subscriptions() {
  const [params] = useSearchParams();
  const unread = params.get("unread") === "true";
  const list = api.useInfiniteQuery(
    "get",
    "/subscriptions",
    { params: { query: { limit: 100, ...(unread && { unread }) } } },
    BY_CURSOR,
  );
  // Why the last scan could not list the subscriptions. The same on each page of the list.
  const listFailure = list.data?.pages[0]?.lastFailure;
  const columns: Column<Subscription>[] = [
    { title: "Name", cell: ({ name }) => name },
    { title: "Subscription ID", cell: ({ subscriptionId }) => subscriptionId },
    { title: "Source", cell: sourceOf },
    { title: "Status", cell: statusOf },
    { title: "Vaults", cell: vaultCountOf },
    { title: "Last scan", cell: lastScanOf },
    { title: "Access problems", cell: accessProblemsOf },
    { title: "", cell: (subscription) => <Actions subscription={subscription} /> },
  ];
  return (
    <>
      <div>
        <Operate
          operation="addSubscription"
          title="Add subscription"
          action="Add subscription"
          submit={(form, add) =>
            add({ body: { subscriptionId: fieldText(form, "subscriptionId"), name: fieldText(form, "name") } })
          }
        >
          <Text>
            The next scan reads the key vaults of this subscription. The service's identity needs access to it.
          </Text>
          <TextField
            name="subscriptionId"
            label="Subscription ID"
            hint="Example: 8eab9bca-7137-4f76-a31c-dcc4acd2ff43"
            required
          />
          <TextField name="name" label="Name" hint="Name to show on this page. Example: Contoso Production" required />
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
        csv
        empty={
          unread
            ? "The last scans could read all known subscriptions."
            : "No subscriptions yet. Start a scan on the Overview page to find the subscriptions that the service can read, or add a subscription."
        }
      />
    </>
  );
}

/** Returns how the service knows the subscription. Users add few subscriptions, so the time has no column of its own. */
function sourceOf({ source, addedAt }: Subscription) {
  if (addedAt === null) return SOURCES[source];
  return (
    <>
      {SOURCES[source]} (<Instant at={addedAt} relative />)
    </>
  );
}

/** Returns the number of vaults. */
const vaultCountOf = ({ counts: { vaults }, lastScan, lastFailure }: Subscription): string =>
  countUnlessUnread(vaults, lastScan === null || lastFailure !== null);

/**
 * Returns what the last scan read of this subscription, and when. The status of the whole scan says nothing about one subscription,
 * unless the scan stopped early.
 */
function lastScanOf({ lastScan, lastFailure, counts: { vaultsWithFailures } }: Subscription) {
  if (lastScan === null) return "Not scanned yet";
  const text =
    lastFailure !== null
      ? "Failed"
      : lastScan.status === "timedOut"
        ? "Not read completely: the scan timed out"
        : lastScan.status === "cancelled"
          ? "Not read completely: the scan was canceled"
          : vaultsWithFailures > 0
            ? "Partially read"
            : "Assets read";
  return (
    <>
      {text} (<Instant at={lastScan.finishedAt} relative />)
    </>
  );
}

/** Returns why the vaults could not be listed, or how many of them could not be read, with a link to their list. */
function accessProblemsOf({ subscriptionId, lastFailure, counts: { vaultsWithFailures } }: Subscription) {
  if (lastFailure !== null) return `${lastFailure.message} ${lastFailure.remedy}`;
  if (vaultsWithFailures === 0) return "None";
  return (
    <Link href={createHref("/vaults", { failing: "true", subscription: subscriptionId })}>
      {counted(vaultsWithFailures, "vault")} could not be read completely
    </Link>
  );
}

/** Returns whether scans read the subscription. `removing`: a removal was interrupted and must be repeated. */
function statusOf({ state, watched, outOfScopeSince, lastFailure }: Subscription) {
  if (state === "removing") return "Removal in progress. If this does not change, remove the subscription again.";
  if (watched && lastFailure !== null)
    return (
      <Badge appearance="tint" color="danger">
        Monitored, can't be read
      </Badge>
    );
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

/** The buttons of a subscription. Only one that a user added can be removed here. */
function Actions({ subscription: { subscriptionId, name, source } }: { subscription: Subscription }) {
  const params = { path: { subscription_id: subscriptionId } };
  return (
    <ButtonRow>
      <Operate
        operation="testSubscription"
        title="Test access"
        about={name}
        action="Test access"
        submit={async (_, test) => <Outcome of={await test({ params })} />}
      >
        <Text>
          Checks whether the service's identity can read the subscription {name}, list its key vaults, and list the
          secrets, keys and certificates in up to five of the key vaults. This makes no changes.
        </Text>
      </Operate>
      {source === "api" && (
        <Operate
          operation="removeSubscription"
          title="Remove"
          kind="subscription"
          about={name}
          action="Remove subscription"
          submit={(_, remove) => remove({ params })}
        >
          <Text>
            Removes {name} from the list of added subscriptions. If the setting Monitor all subscriptions is on, the
            service still monitors {name}. Otherwise its vaults and assets leave the inventory, the compliance score and
            the alerts. Azure resources are not changed.
          </Text>
        </Operate>
      )}
    </ButtonRow>
  );
}

const Outcome = ({ of: { steps } }: { of: Schemas["ConnectionTest"] }) =>
  steps.map(({ step, resource, ok, detail, remedy }) => (
    <div key={`${step} ${resource}`}>
      {ok ? "✓ Passed" : "✗ Failed"}: {STEPS[step]} ({resource}). {detail} {remedy?.text}
    </div>
  ));
