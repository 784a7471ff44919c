import { ROOT } from './say.mjs';
import { which } from './system.mjs';

/**
 * Variables by which CMake takes what was compiled before, in any checkout, from ccache's store; none where there is no ccache.
 * The same sources in another folder are the same: their paths go into debugging information alone.
 */
export function compilerCache() {
  const ccache = which('ccache');
  if (ccache === null) return {};
  const launchers = { CMAKE_C_COMPILER_LAUNCHER: ccache, CMAKE_CXX_COMPILER_LAUNCHER: ccache };
  return { ...launchers, CCACHE_BASEDIR: ROOT, CCACHE_NOHASHDIR: '1' };
}
