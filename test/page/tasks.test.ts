/**
 * Tests of tasks in a real browser, with the clicks counted. Each imported file declares the tasks of one area; all of them share
 * one running service (tasks-fixture.ts). The order of the imports matters, because later tests change data that earlier tests
 * use.
 */
import "./tasks-finding.ts";
import "./tasks-fixing.ts";
import "./tasks-lists.ts";
