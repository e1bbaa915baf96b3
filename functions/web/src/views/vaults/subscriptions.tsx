import { Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { TextField } from "../../parts/fields.tsx";
import { typed } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { useSearchParams } from "../../parts/router.tsx";
import { Only } from "./only.tsx";

type Subscription = Schemas["Subscription"];

/** The subscriptions that are watched; one can be added, tried and taken out. */
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
    { title: "Id", cell: ({ subscriptionId }) => subscriptionId },
    { title: "Source", cell: ({ source }) => source },
    { title: "State", cell: stateOf },
    { title: "Vaults", cell: ({ counts }) => counts.vaults.toLocaleString() },
    { title: "Last scan", cell: ({ lastScan }) => lastScan?.status ?? "none yet" },
    {
      title: "What can't be read",
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
          title="Add a subscription"
          action="Add"
          submit={(form, add) =>
            add({ body: { subscriptionId: typed(form, "subscriptionId"), name: typed(form, "name") } })
          }
        >
          <TextField name="subscriptionId" label="Subscription id" required />
          <TextField name="name" label="Name" required />
        </Operate>
      </div>
      <Only name="unread" label="Only subscriptions that could not be read" />
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
        none={
          unread
            ? "No known subscription failed at its last scan."
            : "None is known yet. A scan lists those that the service's identity may see."
        }
      />
    </>
  );
}

function stateOf({ state, watched, outOfScopeSince }: Subscription) {
  if (state === "removing") return "is being removed: remove it again if this stays";
  if (watched) return "watched";
  return (
    <>
      not watched{" "}
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
        title="Test"
        about={name}
        action="Test"
        appearance="transparent"
        submit={async (_, test) => <Outcome of={await test({ params })} />}
      >
        <Text>Looks whether the service's identity can list the vaults of {name}.</Text>
      </Operate>
      {source === "api" && (
        <Operate
          operation="removeSubscription"
          title="Remove"
          about={name}
          action="Remove"
          appearance="transparent"
          submit={(_, remove) => remove({ params })}
        >
          <Text>
            {name} is no longer named. It stays watched while the setting watchAll is on, and is not watched any more
            otherwise.
          </Text>
        </Operate>
      )}
    </>
  );
}

const Outcome = ({ of: { steps } }: { of: Schemas["ConnectionTest"] }) =>
  steps.map(({ step, resource, ok, detail, remedy }) => (
    <div key={`${step} ${resource}`}>
      {ok ? "✓" : "✗"} {step} {resource} {detail} {remedy?.text}
    </div>
  ));
