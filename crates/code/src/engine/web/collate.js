(function(){ return {localeCompare(target, other){ const a=`${this}`, b=`${other}`; return a<b?-1:a>b?1:0 }} })
