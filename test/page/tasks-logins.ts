import { afterAll, expect } from "vitest";
import { createIdentity } from "../../shared/platform/azure/identity.ts";
import { configFor, useManagedIdentity } from "../azure/live-cloud.ts";
import { createUsers } from "../rotation/database-login-world.ts";
import { type PostgresServer, SERVICE_USER, startPostgres } from "../support/postgresql.ts";
import { service, task, visit } from "./tasks-fixture.ts";

// Tasks of an administrator who has the password of a database rotated, on a real PostgreSQL server. tasks.test.ts runs them.

let postgres: PostgresServer | undefined;
afterAll(() => postgres?.stop());

/** Starts a server with two users, of which a vault secret stores the first one. */
async function addServer(): Promise<[first: string, second: string]> {
  postgres = await startPostgres();
  const { control } = service.cloud;
  await useManagedIdentity(service.cloud);
  const { objectId = "" } = await createIdentity(configFor(service.cloud)).describe();
  const { users, passwords } = await createUsers(postgres, "orders");
  const fullyQualifiedDomainName = await control.databases.serve(
    "psql-orders",
    postgres.port,
    new Map([[objectId, SERVICE_USER]]),
  );
  const { subscriptionId } = (await service.listAll("/api/assets/discovery/vaults")).find(
    ({ name }: { name: string }) => name === "kv-shop",
  );
  control.consumers.put(subscriptionId, {
    type: "Microsoft.DBforPostgreSQL/flexibleServers",
    name: "psql-orders",
    resourceGroup: "rg-orders",
    properties: { fullyQualifiedDomainName },
  });
  const host = fullyQualifiedDomainName.split(":")[0];
  const value = `postgresql://${users[0]}:${passwords[0]}@${host}/postgres`;
  control.putSecret("kv-shop", { name: "orders-database", value });
  await service.scan();
  return users;
}

task("an administrator registers a database login without an ID", async () => {
  const [first, second] = await addServer();
  const visitor = await visit();
  await visitor.follow("Credentials", visitor.navigation);
  await visitor.press("Register database login");
  await visitor.see("psql-orders", visitor.dialog);
  await visitor.type("Database", "postgres");
  await visitor.type("First user", first);
  await visitor.type("Second user", "nobody");
  await visitor.type("Role of the service", SERVICE_USER);
  await visitor.type("Secret name contains", "orders");
  await visitor.press("Find secrets", visitor.dialog);
  await visitor.click(visitor.dialog.getByLabel("kv-shop/orders-database"), "secret");
  await visitor.press("Check login", visitor.dialog);
  await visitor.see("The server has no user nobody.", visitor.dialog);
  expect(await visitor.dialog.getByRole("button", { name: "Register database login" }).count()).toBe(0);
  await visitor.type("Second user", second);
  await visitor.press("Check login", visitor.dialog);
  await visitor.see("The login can be registered.", visitor.dialog);
  await visitor.press("Register database login", visitor.dialog);
  const row = visitor.page
    .getByRole("table", { name: "Credentials" })
    .getByRole("row")
    .filter({ hasText: "psql-orders" });
  await row.filter({ hasText: "PostgreSQL login" }).filter({ hasText: "Ready" }).waitFor();
  visitor.expectClicks();
});

task("the password of a database login is rotated from the page of its vault secret", async () => {
  const visitor = await visit("admin", "/credentials?kind=databaseLogin");
  await visitor.follow("kv-shop/orders-database");
  await visitor.see(/This secret stores a PostgreSQL login of the server/);
  await visitor.follow("psql-orders");
  await visitor.arrive(/psql-orders.*\(orders_a, orders_b\)/);
  await visitor.see(/A rotation gives orders_b a new password/);
  await visitor.press(/^Rotate login: /);
  await visitor.press("Preview rotation", visitor.dialog);
  await visitor.see(/^Give orders_b, which no known place names, a new password on psql-orders/, visitor.dialog);
  await visitor.press("Rotate login", visitor.dialog);
  await visitor.page.getByRole("heading", { name: "Steps" }).waitFor();
  await visitor.see("Overlap period: both logins are valid");
  await visitor.see("Gave orders_b a new password.");
  expect(await visitor.page.getByRole("main").innerText()).not.toMatch(/client secret|undefined|null|\bkey1|a key\b/);
  visitor.expectClicks();
  const password = /:\/\/orders_b:(\w+)@/.exec(
    service.cloud.control.secretValue("kv-shop", "orders-database") ?? "",
  )?.[1];
  expect(await postgres?.accepts("orders_b", password ?? "")).toBe(true);
});

task("an administrator ends the rotations of a database login", async () => {
  const visitor = await visit("admin", "/credentials?kind=databaseLogin");
  await visitor.follow(/psql-orders/);
  await visitor.follow("Show its steps");
  await visitor.press("Finish rotation now");
  await visitor.press("Finish rotation now", visitor.dialog);
  await visitor.see("Completed");
  await visitor.follow("Credentials of the resource");
  await visitor.follow(/psql-orders/);
  await visitor.press(/^Forget login: /);
  await visitor.press("Forget login", visitor.dialog);
  await visitor.arrive("Credentials");
  expect(await visitor.page.getByText("psql-orders").count()).toBe(0);
  visitor.expectClicks();
});
