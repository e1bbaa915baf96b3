/**
 * Tests of the web page (functions/web) in a real browser. Each imported file declares the tests of one subject. All of them
 * share one browser and one running service (fixture.ts). The order of the imports matters, because later tests change data that
 * earlier tests check.
 */
import "./views.ts";
import "./stated-limits.ts";
import "./filters.ts";
import "./sessions.ts";
import "./roles.ts";
import "./untrusted-text.ts";
import "./other-sites.ts";
import "./call-counts.ts";
import "./inventory.ts";
import "./lists.ts";
import "./keyboard.ts";
import "./edit-conflicts.ts";
import "./forms.ts";
import "./pending-forms.ts";
import "./time-dependent.ts";
